"""Word lists from which all training and exam text is made.

Everything the model reads is generated from these lists, so that the project ships its own data.
`GENERIC` only feeds the tokenizer: common English words, so that ordinary text is not spelt out in bytes.
"""

NAMES = """Anna Ben Clara David Emma Felix Grace Hugo Iris Jonas Karla Leo Mara Nils Olga Paul Rosa Simon Tina
Victor Wanda Yuri Zoe Adam Bella Carl Dora Erik Fiona Georg Helen Ivan Julia Kurt Lena Max Nora Oscar Petra
Robin Sara Tom""".split()

CITIES = """Oslo Paris Rome Berlin Madrid Lisbon Vienna Prague Dublin Athens Cairo Tokyo Delhi Lima Boston
London Warsaw Bern Sofia Riga Kyoto Milan Porto Hamburg""".split()

COLOURS = "red blue green yellow black white brown orange purple pink grey silver golden".split()

ANIMALS = """cat dog horse cow sheep goat fox wolf bear mouse rabbit bird duck goose eagle owl fish whale frog
snake turtle lion tiger monkey""".split()

FOODS = "apple bread cheese rice soup cake pear plum egg butter honey salad tea coffee milk lemon onion corn".split()

THINGS = """house garden river bridge tower window door table chair lamp book letter clock boat train car wheel
road forest mountain field lake island stone ship market school church castle village kitchen cellar roof wall
coat hat shoe ring bell drum piano mirror picture bottle basket ladder hammer candle blanket engine machine
paper pencil map key box bag tree flower leaf seed cloud storm wind snow rain fire""".split()

ADJECTIVES = """old new big small long short quick slow quiet loud bright dark warm cold dry wet heavy light
strong weak happy sad clean empty full early late soft hard deep high low wide narrow round sharp sweet gentle
brave clever""".split()

VERBS = """sees finds takes holds moves opens closes follows carries paints cleans builds likes wants keeps
watches brings leaves touches turns pulls pushes hides shows sells buys reads draws""".split()

PLACES = "near behind under above beside inside before after beyond against around towards".split()

TIMES = "Today Yesterday Tomorrow Later Often Sometimes Then Now Soon Once Again Perhaps".split()

ROOMS = "kitchen bedroom bathroom office garage hall garden cellar".split()

LANGUAGES = "French German Spanish Italian Polish Greek".split()

MUSIC = "jazz rock folk opera blues pop".split()

WEATHER = "sunny rainy cloudy windy snowy foggy stormy".split()

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

MONTHS = "January February March April May June July August September October November December".split()

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Germany": "Berlin", "Spain": "Madrid", "Portugal": "Lisbon",
    "Austria": "Vienna", "Norway": "Oslo", "Ireland": "Dublin", "Greece": "Athens", "Egypt": "Cairo",
    "Japan": "Tokyo", "India": "Delhi", "Peru": "Lima", "England": "London", "Poland": "Warsaw", "Latvia": "Riga",
}

COLOUR_OF = {
    "grass": "green", "snow": "white", "coal": "black", "blood": "red", "a banana": "yellow", "the sky": "blue",
    "an orange": "orange", "a flamingo": "pink",
}

OPPOSITES = {
    "hot": "cold", "big": "small", "old": "new", "long": "short", "quick": "slow", "loud": "quiet",
    "bright": "dark", "dry": "wet", "heavy": "light", "strong": "weak", "happy": "sad", "full": "empty",
    "early": "late", "soft": "hard", "high": "low", "wide": "narrow",
}

COUNTS = {
    "days are in a week": 7, "months are in a year": 12, "hours are in a day": 24, "minutes are in an hour": 60,
    "legs does a spider have": 8, "legs does a dog have": 4, "wheels does a car have": 4, "sides does a square have": 4,
    "sides does a triangle have": 3, "letters are in the alphabet": 26,
}

GENERIC = """the of and to in is you that it he was for on are as with his they at be this have from or one had by
but not what all were we when your can said there use an each which she do how their if will up other about out many
then them these so some her would make like him into time has look two more write go see number no way could people
my than first water been call who now find down day did get come made may part over sound take only little work know
place year live me back give most very after our just name good sentence man think say great where help through much
before line right too mean any same tell boy follow came want show also around form three set put end does another
well large must even such because turn here why ask went men read need land different home us move try kind hand again
change off play spell air away point page answer found study still learn should world while might something seem next
hard open example begin life always those both together got group often run important until children side feet mile
night walk white sea grow took four carry state once hear stop without second later miss idea enough eat face watch far
really almost let above girl sometimes cut young talk soon list song being leave family body music color stand sun
question area mark problem complete room knew since ever piece told usually friend easy heard order red door sure
become top across today during short better best however low hours black product happened whole measure remember
early waves reached listen space five step fast true morning passed six ten table pattern slow center love person
money serve appear rain rule govern pull cold notice voice unit power town fine certain fly fall lead cry dark machine
note wait plan figure star box noun field rest correct able done beauty drive contain front teach week final gave
green quick develop ocean warm free minute strong special mind behind clear tail produce fact street inch nothing
course stay wheel full force blue object decide surface deep moon foot system busy test record boat common gold
possible plane dry wonder laugh thousand ago ran check game shape hot brought heat snow tire bring yes distant fill
east paint language among please thank thanks hello model computer program code data text file user server error value
function string return message request response token memory software network internet history science country
government company business information question answer reason result difference example explain describe summary
story poem email letter recipe weather temperature travel health student teacher school university research history
today tomorrow yesterday morning evening welcome sorry maybe perhaps""".split()
