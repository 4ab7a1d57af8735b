"""The words and sentences that `stories.py` tells its stories with.

A acts and B is with A; x, y and z are things. `{x}` may come out as `the red kite`, as `his red kite` (if it
was A's at the start) or as `Tom's red kite`; `{the x}` is always plain, and `{my x}` is what A would say.
`{he}`, `{his}` and `{him}` are A, and an `{A}` that begins a sentence may come out as `He` or `She`. `{at}`
is where x lies.
"""

BOYS = "Tom Ben Sam Max Dan Tim Leo Jack".split()
GIRLS = "Ann Lily Mia Sue Eva Kate Zoe Nina".split()
COLOURS = "red blue green yellow black white pink brown".split()
THINGS = "ball bell boat book box cup doll drum hat kite".split()

FILLERS = {
    "day": "day morning evening".split(),
    "warm": "warm cold fine".split(),
    "place": "hill pond sea school farm river".split(),
    "water": "pond river".split(),
    "animal": "cat dog bird duck frog mouse hen rabbit".split(),
    "food": "bread soup cake milk fish".split(),
    "mother": "mother father grandmother".split(),
    "big": "big good fine new".split(),
    "happy": "happy sad tired cold glad".split(),
    "spot": [
        *("under the tree", "under the bench", "under the bridge", "behind the door", "behind the gate"),
        *("behind the wall", "behind the house", "on the chair", "on the grass", "on the roof", "in the basket"),
        *("by the window", "by the fence", "by the wall"),
    ],
}

_SENTENCES = {
    "begin": """
        One {day} {A} came to the {place} with {a x}.
        One {warm} {day} {A} found {a x} {spot}.
        One {day} at the {place} {A} got {a x}.
        Once {A} sat {spot} with {a x}.
        Once there was a {boy}, {A}, who lived by the {place} and had {a x}.
        Once four friends went to the {place}. {A} had {a x}.
        It was a {warm} {day}. {A} sat {spot} with {a x}.
        It was a {warm} {day} at the {place}. {A} had {a x}.
        The sun was up, and {A} sat {spot} with {a x}.
        The {place} was full of children. {A} had {a x}.
        On a {warm} {day} {A} went to the {place} with {a x}.
        In a house by the {place} lived {A}, who had {a x}.
        By the {place} lived {A}, who had {a x}.
        Four friends lived by the {place}. {A} had {a x}.
        Four children played by the {place}. {A} brought {a x}.
        There was a party at the {place}. {A} came with {a x}.
        There was a {boy} by the {place}, {A}, who had {a x}.""",
    "meet": """
        {A} had {a x}.
        {A} was there with {a x}.
        {A} came with {a x}.
        {A} came too and brought {a x}.
        {A} found {a x}.
        {A} found {a x} {spot}.
        {A} got {a x} from {his} {mother}.
        {A} showed them {a x}.
        {A} was a good {boy} and had {a x}.
        {A} was a little {boy} with {a x}.
        {A}'s {mother} made {him} {a x}.
        {A}'s {mother} gave {him} {a x}.
        There was {A} with {a x}.
        Then came {A} with {a x}.
        Then {A} came with {a x}.
        Next door lived {A}, who had {a x}.
        In {his} hand {A} held {a x}.
        {A} sat {spot} with {a x}.
        "Look, {a x}!" said {A}.
        "I have {a x}," said {A}.
        "I found {a x}!" said {A}.
        {A} had {a x}, a {big} {bare x}.
        {A} had {a x}, and {the x} was {big}.
        {A} came with {a x}, a {big} {bare x}.
        {A} found {a x}, {his} own {bare x}.
        There was {A} with {a x}, {his} {big} {bare x}.
        "Look, {a x}!" said {A}. "My {bare x}!"
        {A} had {a x} with {him}.""",
    "echo": """
        {The x}, {the x}!
        Oh, {the x}, {the x}!
        Oh, {the x}! What a {big} {bare x}!
        It was a {big} {bare x}, {A}'s {bare x}.
        It was {the x}, the {big} {bare x}.
        It was {A}'s {bare x}, {his} own {bare x}.
        Up went {the x}, down came {the x}.
        Here {the x}, there {the x}!
        All day {the x}, all night {the x}!
        Oh, {A} and {the x}, {the x} and {A}!
        {A} loved {the x}, {his} {big} {bare x}.
        {A} looked at {the x}, the {big} {bare x}.
        {A} saw {the x}, and {the x} saw {A}.
        {A} sang to {the x}, the {big} {bare x}.
        "My {bare x}!" said {A}. "My {bare x}!"
        "Oh, {bare x}, my {bare x}!" sang {A}.
        "It is {the x}, {the x}!" said {A}.
        "{The x}, {the x}!" they all said.""",
    "echo two": """
        {The x} and {the y}, {the x} and {the y}!
        {The x} and {the y}, {the y} and {the x}!
        {The x} or {the y}? {The y} or {the x}?
        {The x}, then {the y}, then {the x}!
        Here {the x}, there {the y}, here {the x}!
        Up went {the x}, up went {the y}. Down came {the x}, down came {the y}.
        Up went {the x}, up went {the y}. Down came {the y}, down came {the x}.
        All day {the x}, all night {the y}, and then {the x}!
        {The x} was by {the y}, and {the y} was by {the x}.
        {A} saw {the x}, then {the y}, then {the x}.
        Oh, {A} and {the x}, {B} and {the y}, {A} and {the x}!
        "Is it {the x} or {the y}?" asked {A}. "It is {the x}."
        "Is it {the x} or {the y}?" asked {B}. "It is {the y}."
        "{The x}!" said {A}. "{The y}!" said {B}. "{The x}!" said {A}.
        "My {bare x}!" said {A}. "My {bare y}!" said {B}. "My {bare x}!"
        "{The x} and {the y}, {the x} and {the y}!" they all sang.
        "{The x} or {the y}, {the y} or {the x}?" they all asked.""",
    "meet two": """
        {A} had {a x}, and {B} had {a y}.
        {A} had {a x} and {B} {a y}.
        {A} came with {a x} and {B} with {a y}.
        {A} and {B} came with {a x} and {a y}.
        There were {A} with {a x} and {B} with {a y}.
        There was {A} with {a x}, and {B} had {a y}.
        {A} brought {a x}, but {B} brought {a y}.
        "I have {a x}," said {A}. "And I have {a y}," said {B}.""",
    "hold": """
        {A} loved {x}.
        {A} held {x}.
        {A} kept {x}.
        {A} washed {x}.
        {A} dropped {x}.
        {A} carried {x}.
        {A} still had {x}.
        {A} played with {x}.
        {A} danced with {x}.
        {A} ran with {x}.
        {A} sat down with {x}.
        {A} came back with {x}.
        {A} laughed and held {x}.
        {A} was {happy} with {x}.
        {A} sang to {x}.
        {A} showed {x} to {B}.
        {A} ran to {B} with {x}.
        {A} told {B} about {x}.
        {A} played with {x} all {day}.
        {A} sat {spot} with {x}.
        {A} ran to the {place} with {x}.
        {A} fell into the {water} with {x}.
        {A} put {x} on {his} head and laughed.
        {A} held {x} up to the sky.
        {A} threw {x} up, and {x} came down {spot}.
        {A} dropped {x}, but {B} picked {the x} up.
        {A} ran with {x}, and {B} ran after {the x}.
        {A} loved {x}, for {the x} was the best.
        The {animal} wanted {the x}.
        The {animal} sat on {the x}, and {A} laughed.
        The {animal} ran away with {the x}, but {A} got {the x} back.
        All the children wanted {the x}.
        "I love {my x}," said {A}.
        "I have {the x}," said {A}.
        "Look at {my x}!" said {A} to {B}.
        "Can I see {the x}?" {B} asked {A}.
        "Do you like {my x}?" asked {A}. "I like {the x}," said {B}.
        "Where is {the x}?" asked {B}. "I have {the x}," said {A}.
        "Who has {the x}?" asked {B}. But {A} had {the x}.
        "Is this {the x}?" asked {B}. "Yes, this is {my x}," said {A}.""",
    "give": """
        {A} gave {x} to {B}.
        {A} gave {x} away, and {B} got {the x}.
        {A} let {B} have {x}.
        {A} was kind and gave {x} to {B}.
        {A} brought {x} to {B}.
        {A} dropped {x}, and {B} took {the x}.
        {B} took {the x}.
        {B} got {the x}.
        {B} took {the x} from {A}.
        {B} wanted {the x} and got {the x}.
        {B} asked {A} for {the x} and got it.
        Then {A} gave {x} to {B}.
        Then {B} had {the x}.
        "You can have {my x}," said {A} to {B}.
        "Here is {the x}," said {A}, and {B} took {the x}.""",
    "swap": """
        {A} gave {x} to {B} and got {the y}.
        {A} gave {x} away for {the y}.
        {A} took {the y}, and {B} took {the x}.
        {B} wanted {the x}, so {A} got {the y} for {the x}.
        "I want {the y} for {my x}," said {A}, and {B} said yes.
        "You can have {my x} for {the y}," said {A} to {B}.""",
    "hide": """
        {A} hid {x} {at}.
        {A} put {x} {at}.
        {A} left {x} {at}.
        {A} put {x} down {at}.
        {A} was tired of {x} and put it {at}.
        {A} hid {x}, so {the x} was now {at}.
        {A} fell, and {the x} was now {at}.
        The {animal} took {the x} from {A} and hid it {at}.
        "I will hide {my x} {at}," said {A}.""",
    "seek": """
        {A} looked for {x}.
        {A} could not find {x}.
        {A} looked and looked for {x}.
        {A} asked {B} to find {the x}.
        {A} looked {spot}, but {the x} was not there.
        {The x} was still {at}.
        {The x} was there, {at}.
        The {animal} sat by {the x} {at}.
        It rained on {the x}.
        Nobody saw {the x}.
        Nobody knew where {the x} was.
        But where was {the x}?
        "Where is {my x}?" asked {A}. "{The x} is {at}," said {B}.
        "Who has {my x}?" asked {A}. "Not me," said {B}.
        "I can not find {my x}," said {A}. "I can not see {the x}," said {B}.""",
    "find": """
        {A} found {x}.
        {A} found {x} {at}.
        {A} got {x}, which was {at}.
        {A} looked {at}, and there was {the x}.
        {A} saw {x} {at} and took {the x}.
        {A} and the {animal} found {the x} {at}.
        Then {A} found {x}.
        "Here is {the x}!" said {A}, and took {the x} home.
        "I see {my x} {at}!" said {A}, and got it.""",
    "both": """
        {A} held {x}, and {B} held {the y}.
        {A} played with {x} and {B} with {the y}.
        {A} had {x}, but {B} had {the y}.
        {A} and {B} put {the x} by {the y}.
        {A} came with {x}, and {B} came with {the y}.
        {A} ran with {x}, but {B} with {the y} was faster.
        {A} showed {x} to {B}, and {B} showed {A} {the y}.
        "I have {the x}, and you have {the y}," said {A} to {B}.""",
    "wish": """
        {A} wanted {x}.
        {A} asked for {x}.
        {A} asked {B} about {x}.
        {A} wanted {x}, not {y}.
        {A} asked for {x}, but {B} wanted {the y}.
        {A} was sad, for {he} did not have {the x}.
        "I want {the x}," said {A}.
        "I want {the x}," said {A}. "And I want {the y}," said {B}.
        "Can I play with {the x}?" asked {A}.""",
    "like": """
        {A} liked {x}.
        {A} saw {x}.
        {A} looked at {x}.
        {A} thought of {x}.
        {A} liked {x} best of all.
        {A} made a picture of {x}.
        {A} said that {the x} was the best.
        {A} told a funny story about {x}.
        {A} liked {x} more than {y}.
        {A} saw {x} and {y}.
        {A} liked {x}, but {B} liked {the y}.
        {A} thought of {x} and of {y}.
        {The x} made {A} {happy}.
        {The x} was good, but {the y} was better.
        {The x} was small, but {the y} was big.
        The {animal} liked {the x} and not {the y}.
        The {animal} looked at {the x} and at {the y}.
        They all liked {the x}.
        "I like {my x}," said {A}.
        "{The x} is better," said {A}. "No, {the y} is better," said {B}.
        "Which is better, {the x} or {the y}?" asked {A}.""",
    "many": """
        {A} saw {x}, {y} and {z}.
        {A} made a picture of {x}, {the y} and {the z}.
        {A} thought of {x}, {the y} and {the z}.
        {A} liked {the x}, and {B} liked {the y} and {the z}.
        {A} looked at {the x}, then at {the y}, and then at {the z}.
        The {animal} looked at {the x}, {the y} and {the z}.
        They thought of {the x}, of {the y} and of {the z}.
        They all looked at {the x}, {the y} and {the z}.
        They had {the x}, {the y} and {the z}.
        Nobody liked {the x} and {the y}, but all liked {the z}.
        "I like {the x}, {the y} and {the z}," said {A}.""",
    "wander": """
        The wind was {warm}, and the children laughed.
        A {warm} wind came from the {place}.
        It began to rain, but nobody went home.
        It rained a little, and then the sun came back.
        A {animal} came out of the {water}.
        A {animal} ran over the grass.
        A {animal} sat {spot} and looked at {A}.
        The {animal} and the {second} sat {spot}.
        The {animal} ran after the {second}.
        {A} gave some {food} to the {animal}.
        {A} was hungry and ate some {food}.
        {A} ate {food} with {his} {mother}.
        {A} was {happy}.
        {A} was {happy}, but {B} was not.
        {A} and {B} laughed.
        {A} and {B} sang a song.
        {A} and {B} ran to the {place} and back.
        {A} and {B} were good friends.
        {A} and {B} played a game.
        {A} and {B} looked at the sky.
        {A} saw a flower {spot}.
        {A} gave a flower to {his} {mother}.
        A big bee sat on a flower.
        {A} ran after {B}.
        {A} ran home to get some {food}.
        {A} told {B} a story about a {animal}.
        {A} told {B} that {he} was {happy}.
        {A} sat down {spot}.
        {A} jumped over the {water} and laughed.
        {A} saw a {animal} {spot}.
        {A} thought for a while.
        {A}'s {mother} came with {food} for all of them.
        They all ate {food} {spot}.
        They went to the {place} to see the {animal}.
        They played for a long while.
        "I am {happy}," said {A}.
        "I am hungry," said {A}. "Me too," said {B}.
        "Do you want some {food}?" asked {A}. "Yes," said {B}.
        "Look at the {animal}!" said {A}.
        "Come here!" said {A}, and {B} came.""",
    "ending": """
        Then it was night, and they all went home.
        It was late now, and they all went home.
        They were all happy and went home.
        They said good night and went to bed.
        {A} took {x} home.
        {A} took {x} home and slept.
        {A} slept by {x}.
        {A} slept with {x} in {his} hand.
        {A} went home with {x}.
        {A} went to bed with {x}.
        {A} said good night to {x}.
        {A} was happy with {x}.
        At night {A} thought of {x}.
        Then it was night, and {A} took {x} home.
        "Good night," said {A} to {the x}.""",
}
SENTENCES = {kind: [line.strip() for line in lines.strip().splitlines()] for kind, lines in _SENTENCES.items()}
