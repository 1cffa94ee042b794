"""Licences by their texts: written out as people find them, with what is around them."""

import pytest

from tasks.build.licences import declared, detect, expression, permissive

MIT = """The MIT License (MIT)

Copyright (c) 2020 Somebody <a@b.example>

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

{notice}THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY.
"""
NOTICE = "The above copyright notice and this permission notice shall be included in all\ncopies of the Software.\n\n"
BSD = """Copyright 2019, Somebody. All rights reserved.

Redistribution and use in source and binary forms, with or without
modification, are permitted provided that the following conditions are met:

 * Redistributions of source code must retain the above copyright notice.
 * Redistributions in binary form must reproduce the above copyright notice.
{more}
THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS "AS IS" AND ANY EXPRESS OR IMPLIED
WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED WARRANTIES OF MERCHANTABILITY ARE DISCLAIMED.
"""
THIRD = """ * Neither the name of Somebody nor the names of contributors may be used to endorse or promote
   products derived from this software without specific prior written permission.
"""
FOURTH = """ * All advertising materials mentioning features or use of this software must display a line.
"""
ISC = """Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby
granted{condition}.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE
"""
KEPT = ", provided that the above copyright notice and this permission notice appear in all copies"
UNLICENSE = """This is free and unencumbered software released into the public domain. Anyone is free to copy, modify,
publish, use, compile, sell, or distribute this software, for any purpose, commercial or non-commercial"""
APACHE_SHORT = (
    'Licensed under the Apache License, Version 2.0 (the "License");\nyou may not use this file except in compliance'
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (MIT.format(notice=NOTICE), {"MIT"}),
        (MIT.format(notice=NOTICE).replace("\n", "\r\n * "), {"MIT"}),
        (MIT.format(notice=""), {"MIT-0"}),
        (MIT.format(notice=NOTICE + "The Software shall be used for Good, not Evil.\n"), {"MIT", "JSON"}),
        (MIT.format(notice=NOTICE) + "\nCommons Clause License Condition v1.0", {"MIT", "Commons-Clause"}),
        (BSD.format(more=""), {"BSD-2-Clause"}),
        (BSD.format(more=THIRD), {"BSD-3-Clause"}),
        (BSD.format(more=FOURTH + THIRD), {"BSD-3-Clause", "BSD-4-Clause"}),
        (ISC.format(condition=""), {"0BSD"}),
        (ISC.format(condition=KEPT), {"ISC"}),
        (APACHE_SHORT, {"Apache-2.0"}),
        (MIT.format(notice=NOTICE) + BSD.format(more=THIRD), {"MIT", "BSD-3-Clause"}),
        (MIT.format(notice=NOTICE) + "or, at your choice, the GNU General Public License", {"MIT", "GPL"}),
        ("GNU LESSER GENERAL PUBLIC LICENSE\nVersion 2.1", {"LGPL"}),
        ("Mozilla Public License Version 2.0", {"MPL"}),
        ("MIT License", set()),  # a title is no licence
        ("Licensed under the MIT license, see https://example.org", set()),
        ("Copyright 2020 Somebody. All rights reserved.", set()),
        ("You may use this for non-commercial purposes.", {"NonCommercial"}),
        (UNLICENSE, {"Unlicense"}),
        ("", set()),
    ],
)  # fmt: skip
def test_detection(text, wanted):
    assert detect(text) == wanted


@pytest.mark.parametrize(
    ("licences", "wanted"),
    [
        ({"MIT"}, True),
        ({"MIT", "Apache-2.0"}, True),
        ({"MIT", "GPL"}, False),
        ({"BSD-3-Clause", "BSD-4-Clause"}, False),
        ({"JSON", "MIT"}, False),
        (set(), False),
    ],
)
def test_permissive(licences, wanted):
    assert permissive(licences) == wanted


def test_names_of_catalogues():
    assert [declared(name) for name in ("mit", "apache-2.0", " BSD-3-Clause ", "gpl-2.0", "artistic-2.0", "")] == [
        "MIT", "Apache-2.0", "BSD-3-Clause", "", "", "",
    ]  # fmt: skip
    assert expression({"MIT", "Apache-2.0"}) == "Apache-2.0 AND MIT"
