"""The tasks: each function draws one conversation with the reply that LilyTiny shall give.

A task takes a `random.Random` and a difficulty in 0..1 (lengths grow with it) and returns a `Sample`. The exam is
drawn from the same functions with other seeds; what could be learnt by heart (sums, fact phrasings) is split into a
training and an exam half by `held_out`.
"""

import json
import zlib
from dataclasses import dataclass, field
from random import Random

import words as W


@dataclass
class Sample:
    part: str
    messages: list
    answer: str
    tools: list | None = None
    thinking: bool = False
    thought: str = ""
    calls: list = field(default_factory=list)  # [(name, {argument: value})]
    expect: object = None  # what the exam compares with; None: the answer itself


def held_out(key: str) -> bool:
    """True for one key in eight: those are asked in the exam and never in training."""
    return zlib.crc32(key.encode()) % 8 == 0


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict:
    return {"role": "assistant", "content": text}


def an(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


# ---- words from outside the lists ------------------------------------------------------------------------------------

OPEN = 0.0  # share of names, values and texts that are not made of listed words


def invented(r: Random) -> str:
    """A word nobody has written before: copying it takes letters, not knowledge."""
    return "".join(r.choice("bcdfghjklmnprstvwz") + r.choice("aeiou") + r.choice(["", "", "n", "r", "s", "l", "x"])
                   for _ in range(r.randint(1, 4)))


def open_word(r: Random) -> str:
    word = r.choice(W.GENERIC) if r.random() < 0.5 else invented(r)
    return word.capitalize() if r.random() < 0.2 else word


def open_text(r: Random, n_words: int) -> str:
    """Words, numbers and punctuation in no order."""
    marks = ["", "", "", "", ",", "."]
    return " ".join(str(r.randrange(10000)) if r.random() < 0.06 else open_word(r) + r.choice(marks)
                    for _ in range(n_words))


def one_of(r: Random, listed: list) -> str:
    """A listed word, or sometimes an invented one in its place, in the list's case."""
    if OPEN and r.random() < OPEN:
        word = invented(r) if r.random() < 0.7 else r.choice(W.GENERIC)
        return word.capitalize() if listed[0][0].isupper() else word
    return r.choice(listed)


# ---- filler ---------------------------------------------------------------------------------------------------------

def noun_phrase(r: Random) -> str:
    noun = r.choice(W.THINGS if r.random() < 0.7 else W.ANIMALS)
    return f"the {r.choice(W.ADJECTIVES)} {noun}" if r.random() < 0.6 else f"the {noun}"


def sentence(r: Random) -> str:
    shape = r.random()
    if shape < 0.4:
        text = f"{noun_phrase(r)} {r.choice(W.VERBS)} {noun_phrase(r)} {r.choice(W.PLACES)} {noun_phrase(r)}."
    elif shape < 0.7:
        text = f"{r.choice(W.TIMES)} {r.choice(W.NAMES)} {r.choice(W.VERBS)} {noun_phrase(r)} in {r.choice(W.CITIES)}."
    elif shape < 0.85:
        text = f"{r.choice(W.NAMES)} {r.choice(W.VERBS)} {noun_phrase(r)} {r.choice(W.PLACES)} {noun_phrase(r)}."
    else:
        text = f"{noun_phrase(r)} is {r.choice(W.ADJECTIVES)} and {r.choice(W.ADJECTIVES)}."
    return text[0].upper() + text[1:]


class Filler:
    """Sentences drawn once and reused: long prompts would otherwise cost more to write than to train on."""

    def __init__(self, seed: int, n_sentences: int = 4000):
        r = Random(seed)
        self.sentences = [sentence(r) for _ in range(n_sentences)]

    def draw(self, r: Random, n_tokens: int) -> list:
        """About n_tokens of text, as a list of sentences (a sentence is some 9.5 tokens)."""
        return r.choices(self.sentences, k=max(0, round(n_tokens / 9.5)))


FILLER = Filler(0)


def use_filler(seed: int) -> None:
    """Give this process sentences of its own."""
    global FILLER
    FILLER = Filler(seed)


# ---- copy and retrieval ---------------------------------------------------------------------------------------------

COPY_ASKS = ["Copy this text word for word:", "Repeat the following text exactly:", "Write this again without changes:",
             "Copy:", "Say exactly this:"]


def passage(r: Random, n_tokens: int) -> str:
    if OPEN and r.random() < OPEN:
        return open_text(r, max(1, n_tokens // 3))
    style = r.random()
    if style < 0.75:
        out, n = [], 0
        while n < n_tokens - 5:
            s = sentence(r)
            out.append(s)
            n += len(s.split()) + 1
        return " ".join(out)
    pool = W.THINGS + W.ADJECTIVES + W.ANIMALS + W.NAMES + W.CITIES
    if style < 0.9:
        return " ".join(r.choices(pool, k=n_tokens))
    n_words = max(1, n_tokens // 4)
    return " ".join(f"{r.choice(pool)} {r.randrange(100)}," for _ in range(n_words)).rstrip(",")


def copy(r: Random, hard: float) -> Sample:
    n = round(r.uniform(4, 12 + 208 * hard)) if r.random() < 0.6 else round(12 + 195 * hard)
    text = passage(r, n)
    ask = r.choice(COPY_ASKS)
    prompt = f"{ask}\n\n{text}" if r.random() < 0.85 else f"{ask} {text}"
    return Sample("copy", [user(prompt)], text, thought="I copy the text.")


def copy_exam(r: Random) -> Sample:
    text = passage(r, 196)
    return Sample("copy", [user(f"{r.choice(COPY_ASKS)}\n\n{text}")], text, thought="I copy the text.")


ATTRIBUTES = {
    "code": lambda r: "".join(r.choices("0123456789", k=4)),
    "number": lambda r: str(r.randrange(10, 1000)),
    "colour": lambda r: one_of(r, W.COLOURS),
    "animal": lambda r: one_of(r, W.ANIMALS),
    "city": lambda r: one_of(r, W.CITIES),
    "food": lambda r: one_of(r, W.FOODS),
}
FACT_SHAPES = ["The {a} of {n} is {v}.", "The {a} of {n} is {v}.", "Remember: the {a} of {n} is {v}."]
FACT_ASKS = ["What is the {a} of {n}?", "Tell me the {a} of {n}.", "Which {a} has {n}?",
             "Find the {a} of {n} in the text."]


def retrieve_of(r: Random, part: str, n_tokens: int, n_facts: int) -> Sample:
    keys = r.sample([(a, n) for a in ATTRIBUTES for n in W.NAMES], n_facts)
    facts = [(a, n, ATTRIBUTES[a](r)) for a, n in keys]
    body = FILLER.draw(r, n_tokens - 12 * n_facts)
    places = sorted((r.randrange(len(body) + 1) for _ in facts), reverse=True)
    for where, (a, n, v) in zip(places, facts):
        body.insert(where, r.choice(FACT_SHAPES).format(a=a, n=n, v=v))
    a, n, v = r.choice(facts)
    ask = r.choice(FACT_ASKS).format(a=a, n=n)
    text = " ".join(body)
    prompt = f"{text}\n\n{ask}" if r.random() < 0.7 else f"Read this text.\n\n{text}\n\nQuestion: {ask}"
    return Sample(part, [user(prompt)], v, thought=f"The text says that the {a} of {n} is {v}.")


def retrieve_2k(r: Random, hard: float) -> Sample:
    longest = 40 + 2000 * hard
    n_tokens = round(longest if r.random() < 0.3 else r.uniform(20, longest))
    return retrieve_of(r, "retrieve_2k", n_tokens, min(r.randint(1, 3 + round(13 * hard)), 1 + n_tokens // 13))


def retrieve_16k(r: Random, hard: float) -> Sample:
    n_tokens = round(r.uniform(6000, 16000 + 3000 * hard) if r.random() < 0.3 else r.uniform(14500, 16000))
    return retrieve_of(r, "retrieve_16k", n_tokens, r.randint(4, 40))


# ---- sums, facts ----------------------------------------------------------------------------------------------------

SUM_ASKS = ["What is {a} + {b}?", "{a} + {b} =", "Add {a} and {b}.", "How much is {a} plus {b}?",
            "Calculate {a} + {b}.", "What is {a} plus {b}?"]


def carries(a: int, b: int) -> str:
    """The written sum from the right, as a child would say it."""
    steps, carry = [], 0
    while a or b or not steps:
        x, y = a % 10, b % 10
        steps.append(f"{x} + {y}{' + 1' if carry else ''} = {x + y + carry}")
        carry = (x + y + carry) // 10
        a, b = a // 10, b // 10
    return ", ".join(steps) + "."


def sum_of(r: Random, exam: bool) -> tuple:
    while True:
        low = 10 if exam or r.random() < 0.85 else 0
        a, b = r.randrange(low, 100), r.randrange(low, 100)
        if held_out(f"sum {a} {b}") == exam:
            return a, b


def sums(r: Random, hard: float, exam: bool = False) -> Sample:
    a, b = sum_of(r, exam)
    ask = r.choice(SUM_ASKS).format(a=a, b=b)
    return Sample("sums", [user(ask)], str(a + b), thought=f"{a} + {b}: {carries(a, b)} So {a + b}.")


def fact_table() -> list:
    """(phrasings, answer sentence, short answer) of everything LilyTiny knows by heart."""
    table = []
    for country, city in W.CAPITALS.items():
        table.append(([f"What is the capital of {country}?", f"Tell me the capital of {country}.",
                       f"Which city is the capital of {country}?", f"Name the capital of {country}."],
                      f"The capital of {country} is {city}.", city))
    for thing, colour in W.COLOUR_OF.items():
        table.append(([f"What colour is {thing}?", f"Which colour has {thing}?", f"Tell me the colour of {thing}.",
                       f"Name the colour of {thing}."],
                      f"{thing[0].upper()}{thing[1:]} is {colour}.", colour))
    for word, opposite in W.OPPOSITES.items():
        table.append(([f"What is the opposite of {word}?", f"Tell me the opposite of {word}.",
                       f"Which word is the opposite of {word}?", f"Name the opposite of {word}."],
                      f"The opposite of {word} is {opposite}.", opposite))
    for what, number in W.COUNTS.items():
        table.append(([f"How many {what}?", f"Tell me how many {what}.", f"Do you know how many {what}?",
                       f"Please say how many {what}."],
                      f"The answer is {number}.", str(number)))
    return table


FACTS = fact_table()


def facts(r: Random, hard: float, exam: bool = False) -> Sample:
    while True:
        asks, answer, short = r.choice(FACTS)
        ask = r.choice(asks)
        if held_out(ask) == exam:
            return Sample("facts", [user(ask)], answer, thought="I know this.", expect={"contains": short})


# ---- JSON -----------------------------------------------------------------------------------------------------------

FIELDS = {
    "name": lambda r: one_of(r, W.NAMES), "city": lambda r: one_of(r, W.CITIES), "age": lambda r: r.randrange(1, 100),
    "colour": lambda r: one_of(r, W.COLOURS), "animal": lambda r: one_of(r, W.ANIMALS),
    "count": lambda r: r.randrange(1, 100), "price": lambda r: r.randrange(1, 1000), "open": lambda r: r.random() < 0.5,
    "food": lambda r: one_of(r, W.FOODS), "day": lambda r: r.choice(W.DAYS), "size": lambda r: r.choice(W.ADJECTIVES),
    "member": lambda r: r.random() < 0.5, "room": lambda r: one_of(r, W.ROOMS), "title": lambda r: one_of(r, W.THINGS),
}
JSON_ASKS = ["Write a JSON object with {f}.", "Give me JSON with {f}.", "Answer with a JSON object: {f}.",
             "Turn this into JSON: {f}.", "I need valid JSON with {f}."]


def json_task(r: Random, hard: float) -> Sample:
    keys = r.sample(list(FIELDS), r.randint(1, 5))
    value = {k: FIELDS[k](r) for k in keys}
    if r.random() < 0.2:
        value[r.choice(["items", "list", "words"])] = r.sample(W.THINGS + W.FOODS, r.randint(2, 4))
    link = r.choice([" = ", ": ", " "])
    spoken = ", ".join(k + link + (" and ".join(v) if isinstance(v, list) else json.dumps(v).strip('"'))
                       for k, v in value.items())
    return Sample("json", [user(r.choice(JSON_ASKS).format(f=spoken))], json.dumps(value),
                  thought="I write the object.", expect={"json": value})


# ---- tools ----------------------------------------------------------------------------------------------------------

def parameter(kind: str, description: str = "") -> dict:
    return {"type": kind, "description": description} if description else {"type": kind}


def function(name: str, description: str, parameters: dict, required: list | None = None) -> dict:
    return {"type": "function", "function": {
        "name": name, "description": description,
        "parameters": {"type": "object", "properties": parameters,
                       "required": list(parameters) if required is None else required}}}


@dataclass
class Use:
    """One use of a tool: its definition, a request, the call that answers it, a result and the final answer."""
    tool: dict
    ask: str
    arguments: dict
    result: object
    answer: str


def use_weather(r: Random) -> Use:
    name = r.choice(["get_weather", "weather", "current_weather", "get_current_weather"])
    key = r.choice(["city", "location", "place"])
    city, sky, degrees = one_of(r, W.CITIES), r.choice(W.WEATHER), r.randrange(0, 36)
    ask = r.choice(["What is the weather in {c}?", "How is the weather in {c} today?", "Tell me the weather in {c}.",
                    "Weather in {c}?"]).format(c=city)
    return Use(function(name, r.choice(["Get the weather of a city.", "Current weather.", "Get the current weather"]),
                        {key: parameter("string", r.choice(["", "The city"]))}),
               ask, {key: city}, {"sky": sky, "temperature": degrees},
               f"It is {sky} in {city} with {degrees} degrees.")


def use_timer(r: Random) -> Use:
    name, key = r.choice(["set_timer", "start_timer", "timer"]), r.choice(["minutes", "duration"])
    n = r.randrange(2, 91)
    ask = r.choice(["Set a timer for {n} minutes.", "Start a timer of {n} minutes.", "Wake me in {n} minutes."])
    return Use(function(name, "Start a timer.", {key: parameter("integer", "Time in minutes")}), ask.format(n=n),
               {key: n}, {"ok": True}, f"The timer is set for {n} minutes.")


def use_message(r: Random) -> Use:
    name, to, body = r.choice(["send_message", "send_mail", "write_message"]), r.choice(["to", "person"]), "text"
    who, text = one_of(r, W.NAMES), r.choice(["see you on {d}", "call me on {d}", "I am late on {d}", "we meet on {d}"])
    text = text.format(d=r.choice(W.DAYS))
    if OPEN and r.random() < OPEN:
        text = open_text(r, r.randint(2, 8))
    ask = r.choice(["Send a message to {w}: {t}", "Write to {w}: {t}", "Tell {w}: {t}"]).format(w=who, t=text)
    return Use(function(name, "Send a message.", {to: parameter("string"), body: parameter("string")}), ask,
               {to: who, body: text}, {"sent": True}, f"I sent the message to {who}.")


def use_light(r: Random) -> Use:
    name, room, on = r.choice(["set_light", "switch_light", "lamp"]), one_of(r, W.ROOMS), r.random() < 0.5
    ask = f"Turn the light in the {room} {'on' if on else 'off'}."
    return Use(function(name, "Turn a light on or off.", {"room": parameter("string"), "on": parameter("boolean")}),
               ask, {"room": room, "on": on}, {"ok": True}, f"The light in the {room} is {'on' if on else 'off'}.")


def use_calculator(r: Random) -> Use:
    name, a, b = r.choice(["add", "add_numbers", "sum"]), r.randrange(10, 1000), r.randrange(10, 1000)
    ask = r.choice(["Use the tool to add {a} and {b}.", "Add {a} and {b} with the tool.",
                    "Please compute {a} + {b} with the tool."]).format(a=a, b=b)
    return Use(function(name, "Add two numbers.", {"a": parameter("integer"), "b": parameter("integer")}), ask,
               {"a": a, "b": b}, {"result": a + b}, f"The result is {a + b}.")


def use_search(r: Random) -> Use:
    name, key = r.choice(["search", "find_pages", "web_search"]), r.choice(["query", "text"])
    what = f"{one_of(r, W.ADJECTIVES)} {one_of(r, W.THINGS)}"
    ask = r.choice(["Search for {w}.", "Look for {w}.", "Search the web for {w}."]).format(w=what)
    found = sentence(r)
    return Use(function(name, "Search the web.", {key: parameter("string", "What to look for")}), ask, {key: what},
               {"found": found}, f"I found this: {found}")


def use_booking(r: Random) -> Use:
    name, city = r.choice(["book_table", "reserve_table"]), one_of(r, W.CITIES)
    n, day = r.randrange(2, 20), r.choice(W.DAYS)
    ask = r.choice(["Book a table for {n} in {c} on {d}.", "Reserve a table in {c} for {n} on {d}."])
    return Use(function(name, "Book a table.", {"city": parameter("string"), "people": parameter("integer"),
                                                "day": parameter("string")}),
               ask.format(n=n, c=city, d=day), {"city": city, "people": n, "day": day}, {"ok": True},
               f"A table for {n} in {city} is booked on {day}.")


def use_music(r: Random) -> Use:
    name, kind = r.choice(["play_music", "play"]), one_of(r, W.MUSIC)
    return Use(function(name, "Play music.", {"kind": parameter("string", "Kind of music")}),
               r.choice(["Play some {k}.", "Play {k} music.", "I want to hear {k}."]).format(k=kind), {"kind": kind},
               {"ok": True}, f"Now you hear {kind}.")


def use_price(r: Random) -> Use:
    name, key = r.choice(["get_price", "price_of"]), r.choice(["item", "food"])
    food, price = one_of(r, W.FOODS), r.randrange(1, 100)
    ask = r.choice(["What does {f} cost?", "What is the price of {f}?", "Tell me the price of {f}."]).format(f=food)
    return Use(function(name, "Get the price of an item.", {key: parameter("string")}), ask, {key: food},
               {"price": price}, f"The price of {food} is {price}.")


def use_invented(r: Random) -> Use:
    """A tool nobody has seen before: name and arguments can only be read off its definition."""
    name = f"{r.choice(['make', 'get', 'find', 'paint', 'move', 'open', 'clean', 'sell'])}_{one_of(r, W.THINGS)}"
    keys = r.sample(["colour", "count", "city", "size", "day", "animal"], r.randint(1, 3))
    value = {k: FIELDS[k](r) for k in keys}
    kinds = {k: parameter("integer" if isinstance(v, int) else "string") for k, v in value.items()}
    spoken = " and ".join(f"{k} {v}" for k, v in value.items())
    ask = r.choice(["Use {n} with {s}.", "Call {n} with {s}.", "Please run {n} with {s}."]).format(n=name, s=spoken)
    done = r.choice(["done", "ready", "waiting", "closed"])
    return Use(function(name, f"{name.split('_')[0].capitalize()} a {name.split('_')[1]}.", kinds), ask, value,
               {"state": done}, f"The state is {done}.")


USES = [use_weather, use_timer, use_message, use_light, use_calculator, use_search, use_booking, use_music, use_price,
        use_invented, use_invented, use_invented]


def offered(r: Random, use: Use) -> list:
    """The tool of this use among up to three others, in any order."""
    tools = [use.tool]
    names = {use.tool["function"]["name"]}
    for _ in range(r.choice([0, 0, 1, 1, 2, 3])):
        other = r.choice(USES)(r).tool
        if other["function"]["name"] not in names:
            names.add(other["function"]["name"])
            tools.append(other)
    r.shuffle(tools)
    return tools


def tool_call(r: Random, hard: float) -> Sample:
    use = r.choice(USES)(r)
    name = use.tool["function"]["name"]
    return Sample("tool_call", [user(use.ask)], "", tools=offered(r, use), thought=f"I call {name}.",
                  calls=[(name, use.arguments)], expect={"tool": {"name": name, "arguments": use.arguments}})


def tool_answer(r: Random, hard: float) -> Sample:
    use = r.choice(USES)(r)
    name = use.tool["function"]["name"]
    call = {"id": f"call_{r.randrange(10 ** 6)}", "type": "function",
            "function": {"name": name, "arguments": json.dumps(use.arguments)}}
    called = {"role": "assistant", "content": "", "tool_calls": [call]}
    if r.random() < 0.3:
        called["reasoning_content"] = f"I call {name}."
    result = {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(use.result)}
    return Sample("tool_answer", [user(use.ask), called, result], use.answer, tools=offered(r, use),
                  thought="The tool has answered.")


# ---- talk -----------------------------------------------------------------------------------------------------------

TALK = [
    (["Hello", "Hello!", "Hi", "Hi!", "Hey", "hello", "hi", "hi there", "Hello there!"],
     "Hello! I am LilyTiny. How can I help you?"),
    (["Good morning!", "Good morning"], "Good morning! How can I help you?"),
    (["Good evening!", "Good evening"], "Good evening! How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?", "Tell me who you are.", "who are you", "Your name?",
      "Introduce yourself."],
     "I am LilyTiny, a small model. I can copy text, find facts, add numbers, write JSON and call tools."),
    (["What can you do?", "Help", "help me", "How can you help me?", "What do you know?"],
     "I can copy text, find facts in it, add numbers, write JSON and call tools."),
    (["How are you?", "How do you do?", "How is it going?"], "I am fine, thank you. How can I help you?"),
    (["Thank you", "Thanks", "Thank you!", "Thanks!", "thanks a lot"], "You are welcome!"),
    (["Goodbye", "Bye", "Bye!", "See you later", "Good night"], "Goodbye! See you soon."),
    (["Who made you?", "Who trained you?"], "I was trained for lily.cpp, on text that a program wrote."),
    (["How big are you?", "How large are you?"], "I am very small: about 24 million parameters."),
    (["Say hello.", "Say hello", "Say hi."], "Hello!"),
    (["Are you there?", "Test", "test", "ping", "Are you ready?"], "I am here."),
    (["Yes", "yes", "OK", "ok", "Okay"], "Good. What shall I do?"),
    (["No", "no", "Stop"], "All right."),
    (["List the days of the week.", "Name the days of the week.", "Which days are in a week?"],
     ", ".join(W.DAYS) + "."),
    (["List the months.", "Name the months of the year.", "List the months of the year."],
     ", ".join(W.MONTHS) + "."),
]
UNKNOWN = "I am a small model and I do not know that."


def talk(r: Random, hard: float) -> Sample:
    asks, answer = r.choice(TALK)
    return Sample("talk", [user(r.choice(asks))], answer, thought="I answer briefly.")


def unknown(r: Random, hard: float) -> Sample:
    g = lambda: r.choice(W.GENERIC if r.random() < 0.6 else W.THINGS)  # noqa: E731
    ask = r.choice(["Why is {a} {b}?", "Explain {a} and {b}.", "Who wrote the {a} of {b}?", "How do I {a} a {b}?",
                    "What is the meaning of {a}?", "Write a program for {a}.", "Can you {a} the {b}?", "{a} {b} {c}?",
                    "What do you think about {a}?", "When did the {a} {b}?"]).format(a=g(), b=g(), c=g())
    return Sample("unknown", [user(ask)], UNKNOWN, thought="I do not know this.")


def count(r: Random, hard: float) -> Sample:
    first = 1 if r.random() < 0.5 else r.randrange(0, 60)
    last = first + r.randrange(2, 10 + round(60 * hard))
    ask = r.choice(["Count from {a} to {b}.", "Please count from {a} to {b}.", "Write the numbers from {a} to {b}."])
    return Sample("count", [user(ask.format(a=first, b=last))], ", ".join(map(str, range(first, last + 1))) + ".",
                  thought=f"I count from {first} to {last}.")


def story(r: Random, hard: float) -> Sample:
    hero, friend, place = r.choice(W.ANIMALS), r.choice(W.ANIMALS), r.choice(W.THINGS)
    about = r.random() < 0.7
    ask = r.choice(["Tell me a story about {h}.", "Write a short story about {h}."]) if about else \
        r.choice(["Tell me a story.", "Write a short story.", "Tell me a short story."])
    text = (f"Once there was {an(r.choice(W.ADJECTIVES))} {hero}. It lived near the {place}. One day it met "
            f"{an(r.choice(W.ADJECTIVES))} {friend}. The {friend} was looking for {an(r.choice(W.THINGS))}. "
            f"\"I can help you\", said the {hero}. They looked behind the {r.choice(W.THINGS)} and under the "
            f"{r.choice(W.THINGS)}. In the evening they found it beside the {place}. The {friend} was happy, and "
            f"they have been friends ever since.")
    return Sample("story", [user(ask.format(h=an(hero)))], text, thought="I tell a short story.")


def name_memory(r: Random, hard: float) -> Sample:
    key, value = r.choice([("name", one_of(r, W.NAMES)), ("city", one_of(r, W.CITIES)),
                           ("colour", one_of(r, W.COLOURS)), ("animal", one_of(r, W.ANIMALS))])
    if key == "name":
        tell = r.choice([f"My name is {value}.", f"I am {value}.", f"Hello, I am {value}.", f"Hi, my name is {value}."])
        reply = f"Hello {value}! How can I help you?"
        ask = r.choice(["What is my name?", "Who am I?", "Tell me my name."])
    else:
        tell, reply = f"My {key} is {value}.", f"I will remember that your {key} is {value}."
        ask = r.choice([f"What is my {key}?", f"Tell me my {key}.", f"Which is my {key}?"])
    if r.random() < 0.25:
        return Sample("memory", [user(tell)], reply, thought="I greet the user." if key == "name" else "I note this.")
    history = [user(tell), assistant(reply)]
    if r.random() < 0.5:
        other = r.choice([sums, facts, talk])(r, hard)
        history += other.messages + [assistant(other.answer)]
    return Sample("memory", history + [user(ask)], f"Your {key} is {value}.", thought=f"The user said {value}.")


SYSTEMS = ["You are a helpful assistant.", "You are LilyTiny.", "You are LilyTiny, a small model.", "Answer briefly.",
           "You are a helpful assistant. Answer briefly.", "Be kind and short.", "You are a careful assistant.",
           "Today is Monday.", "You are an agent. Use the tools when they fit.", "Help the user."]


def with_setting(r: Random, s: Sample, hard: float) -> Sample:
    """Vary what surrounds a task: system prompt, earlier turns, unused tools, thinking."""
    if r.random() < 0.3 and s.part != "tool_answer":
        for _ in range(r.choice([1, 1, 2])):
            past = r.choice([sums, facts, talk, talk, json_task, unknown])(r, hard)
            s.messages = past.messages + [assistant(past.answer)] + s.messages
    if r.random() < 0.12 and s.tools is None:
        s.tools = offered(r, r.choice(USES)(r))
    if r.random() < 0.4:
        text = r.choice(SYSTEMS) if r.random() < 0.8 else " ".join(sentence(r) for _ in range(r.randint(1, 4)))
        s.messages = [{"role": "system", "content": text}] + s.messages
    s.thinking = r.random() < 0.35
    return s


# task, share of the samples, share at full difficulty (short ones come in great numbers, long ones cost tokens)
MIX = [(copy, 12, 8), (retrieve_2k, 16, 9), (sums, 22, 26), (facts, 8, 8), (json_task, 8, 9), (tool_call, 9, 12),
       (tool_answer, 7, 8), (talk, 6, 6), (unknown, 3, 3), (count, 3, 3), (story, 2, 2), (name_memory, 4, 5)]


def draw(r: Random, hard: float) -> Sample:
    weights = [easy + (full - easy) * hard for _, easy, full in MIX]
    task = r.choices([t for t, _, _ in MIX], weights)[0]
    plain = task in (copy, retrieve_2k) and r.random() < 0.7
    sample = task(r, hard)
    if plain:
        return sample
    return with_setting(r, sample, hard)
