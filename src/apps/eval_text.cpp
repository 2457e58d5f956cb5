#include "apps/eval_text.h"

namespace lily::apps {

const std::string_view kEvalText = R"TEXT(<|im_start|>system
You are a careful assistant.<|im_end|>
<|im_start|>user
Why does the moon always show us the same side?<|im_end|>
<|im_start|>assistant
<think>

</think>

Because the moon turns once around its own axis in the same time that it takes to travel once around the earth. Long ago it turned faster. The earth pulls a little harder on the near side of the moon than on the far side, and this difference stretches the moon into a slight oval. While it still turned faster, the oval was always being dragged out of line, and the pull on it worked like a brake. Over millions of years the brake slowed the turning until one face stayed towards us. Most large moons in the solar system have ended in the same way.<|im_end|>
<|im_start|>user
What is 27 + 45?<|im_end|>
<|im_start|>assistant
<think>

</think>

72<|im_end|>
<|im_start|>user
Give me a JSON object with the name and the age of Anna, who is 31.<|im_end|>
<|im_start|>assistant
<think>

</think>

{"name": "Anna", "age": 31}<|im_end|>
The harbour town of Velden lies where two rivers meet. In the older part of the town the streets follow the slope of the hill, and many of the houses lean towards each other as if they were telling secrets. The market is held on Tuesdays and on Saturdays. Farmers bring potatoes, apples, honey and cheese; fishermen bring what the night has given them. By noon most of the stalls are empty, and the gulls walk between them and look for what has been left behind.

In 1874 a flood carried away the wooden bridge. For eleven years people crossed the water by ferry, and the ferryman, whose name was Josef Arden, became the best informed man in the county. He knew who was ill, who was in love, and who owed money to whom. When the stone bridge was opened in 1885 he was asked to walk across it first. He refused, so the story goes, and rowed over one last time instead, with nobody in the boat but his dog.

To make a simple bread, mix 500 grams of flour, 350 grams of water, 10 grams of salt and 3 grams of dry yeast. Knead the dough for ten minutes, cover it, and let it rise until it has doubled, which takes about two hours in a warm kitchen and all night in a cold one. Shape it, let it rest for another half an hour, and bake it in a very hot oven for 35 minutes. The bread is done when it sounds hollow. Let it cool before you cut it, even though nobody ever does.

A queue is a list with two rules: what comes first leaves first, and nothing is taken from the middle. A stack has the opposite rule: what came last leaves first. Both can be built on an array and two counters. The counters only ever grow; the position in the array is the counter modulo the length. When the counters are equal the queue is empty, and when they differ by the length it is full.

def median(values):
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        raise ValueError("median of nothing")
    if n % 2 == 1:
        return ordered[n // 2]
    return (ordered[n // 2 - 1] + ordered[n // 2]) / 2

for size in range(1, 6):
    print(size, median(list(range(size))))

Water boils at 100 degrees Celsius at sea level, at about 93 degrees in a town 2,000 metres up, and at 71 degrees on the highest mountain. The reason is that boiling is a contest: the vapour inside a bubble has to push as hard as the air and the water outside. Where the air is thin, less push is enough, and a lower temperature gives it. This is why beans take longer to soften in the mountains, and why a closed pot with a valve, in which the pressure can rise, cooks them faster anywhere.

Dear Mr Holt, thank you for your letter of the third of May. We have looked into the matter of the missing parcel. It left our house on the twelfth of April, weighed 4.2 kilograms, and was signed for at 10:45 on the fifteenth by someone whose name we cannot read. Please ask your neighbours. If it does not turn up within a week we shall send you another one, and you will owe us nothing. With kind regards, E. Marchetti.

Der alte Leuchtturm steht seit 1902 auf der Klippe. Nachts sieht man sein Licht bis zu 30 Kilometer weit. La lumière tourne toutes les douze secondes, et les marins la connaissent bien. El faro nunca se apaga. 灯台の光は遠くまで届く。

The committee met four times. At the first meeting it agreed on what the question was, which took three hours. At the second it found that two of its members had been answering a different one. At the third it wrote down everything that was known, on a single page, and everything that was not known, on six. At the fourth it recommended that the bridge should be repaired and not replaced, that the work should begin in spring, and that somebody should tell the owner of the boats.
)TEXT";

}  // namespace lily::apps
