"""Licences of software, recognised by what their texts say.

A text is taken to its words in lower case, so that line breaks, quotes and copyright signs do not matter. A licence is
in it if the sentences that make that licence stand in it in their order. A file may hold several, and all of them
count. Nothing is concluded from a title, a badge or a file's name: what is not recognised is unknown.
"""

import re
from collections.abc import Iterable

GRANT = (
    "permission is hereby granted free of charge to any person obtaining a copy of this software and associated "
    "documentation files the software to deal in the software without restriction including without limitation the "
    "rights to use copy modify merge publish distribute sublicense and or sell copies of the software and to permit "
    "persons to whom the software is furnished to do so"
)
NOTICE = "the above copyright notice and this permission notice"
AS_IS = "the software is provided as is without warranty of any kind express or implied"
FREELY = (
    "permission to use copy modify and or distribute this software for any purpose with or without fee is hereby "
    "granted"
)
BSD = (
    "redistribution and use in source and binary forms with or without modification are permitted provided that the "
    "following conditions are met",
    "redistributions of source code must retain",
    "redistributions in binary form must reproduce",
)
ENDORSE = (
    "may be used to endorse or promote products derived from this software without specific prior written permission"
)
BSD_AS_IS = "express or implied warranties including but not limited to the implied warranties of merchantability"

# SPDX identifier -> sentences in their order.
PERMISSIVE = {
    "0BSD": (FREELY, "the software is provided as is and the author disclaims all warranties"),
    "Apache-2.0": (
        "apache license version 2 0 january 2004",
        "grant of copyright license",
        "grant of patent license",
        "you must give any other recipients of the work or derivative works a copy of this license",
    ),
    "BSD-2-Clause": (*BSD, BSD_AS_IS),
    "BSD-3-Clause": (*BSD, ENDORSE, BSD_AS_IS),
    "BSL-1.0": (
        "boost software license version 1 0",
        "permission is hereby granted free of charge to any person or organization obtaining a copy of the software",
        "unless such copies or derivative works are solely in the form of machine executable object code",
    ),
    "CC0-1.0": (
        "cc0 1 0 universal",
        "overtly fully permanently irrevocably and unconditionally waives abandons and surrenders",
    ),
    "ISC": (
        FREELY,
        "provided that the above copyright notice and this permission notice appear in all copies",
        "the software is provided as is and the author disclaims all warranties",
    ),
    "MIT": (GRANT, NOTICE, AS_IS),
    "MIT-0": (GRANT, AS_IS),
    "Unlicense": (
        "this is free and unencumbered software released into the public domain",
        "anyone is free to copy modify publish use compile sell or distribute this software",
    ),
    "Zlib": (
        "this software is provided as is without any express or implied warranty",
        "the origin of this software must not be misrepresented",
        "altered source versions must be plainly marked as such",
        "this notice may not be removed or altered from any source distribution",
    ),
}
# Whose sentences are all in another's as well; the text is that other one then.
EXTENDED = {"0BSD": "ISC", "BSD-2-Clause": "BSD-3-Clause", "MIT-0": "MIT"}
# What asks for more than its notice to be kept, and conditions that are added to texts that do not.
OTHERS = (
    ("AGPL", ("gnu affero general public license",)),
    ("BSD-4-Clause", (*BSD, "all advertising materials mentioning features or use of this software must display")),
    ("CC-BY-NC", ("creative commons attribution noncommercial",)),
    ("CC-BY-NC", ("creative commons attribution non commercial",)),
    ("CC-BY-ND", ("creative commons attribution noderivatives",)),
    ("CC-BY-SA", ("creative commons attribution sharealike",)),
    ("CC-BY-SA", ("creative commons attribution share alike",)),
    ("Commons-Clause", ("commons clause",)),
    ("EPL", ("eclipse public license",)),
    ("GPL", ("gnu general public license",)),
    ("JSON", ("the software shall be used for good not evil",)),
    ("LGPL", ("gnu lesser general public license",)),
    ("LGPL", ("gnu library general public license",)),
    ("MPL", ("mozilla public license",)),
    ("NonCommercial", ("for non commercial",)),
    ("NonCommercial", ("for noncommercial",)),
    ("SSPL", ("server side public license",)),
)
# The short form that refers to a text elsewhere, which some projects have in its place.
SHORT = {
    "Apache-2.0": ("licensed under the apache license version 2 0 the license you may not use this file except in",),
}


def detect(text: str) -> frozenset[str]:
    """SPDX identifiers of the licences that a text contains, and short names of those that are not permissive."""
    words = " ".join(re.findall(r"[a-z0-9]+", text.lower()))
    known = (*PERMISSIVE.items(), *OTHERS, *SHORT.items())
    found = {name for name, sentences in known if _in_order(sentences, words)}
    return frozenset(name for name in found if EXTENDED.get(name) not in found)


def permissive(licences: Iterable[str]) -> bool:
    """Whether these are licences, and all of them ask for no more than that their notice is kept."""
    held = set(licences)
    return bool(held) and held <= set(PERMISSIVE)


def declared(name: str) -> str:
    """The SPDX identifier of a licence that a catalogue names, in whatever case; '' if it is no permissive one."""
    return {one.lower(): one for one in PERMISSIVE}.get(name.strip().lower(), "")


def expression(licences: Iterable[str]) -> str:
    """Several licences as one SPDX expression; whether all hold or one may be chosen is not known, so all do."""
    return " AND ".join(sorted(licences))


def _in_order(sentences: Iterable[str], words: str) -> bool:
    place = 0
    for sentence in sentences:
        place = words.find(sentence, place)
        if place < 0:
            return False
        place += len(sentence)
    return True
