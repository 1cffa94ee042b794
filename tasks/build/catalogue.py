"""What `repro data build` can build: names of corpora and where their readers are, imported when they are asked for."""

import importlib
from typing import Any

# Corpora of documents: a `Source` that the pipeline builds records of.
SOURCES = {
    "arxiv": "Arxiv",
    "github": "GitHub",
    "isabelle": "Isabelle",
    "pg19": "PG19",
    "c4": "C4",
}
# Data that are no documents: a module with build(source, out), which lays out what the task of that name reads.
LAYOUTS = ("enwik8", "imagenet64", "wmt14")
NAMES = (*SOURCES, *LAYOUTS)


def reader(name: str) -> Any:
    """The class of a corpus of documents, or the module of other data."""
    module = importlib.import_module(f"tasks.build.{name}")
    return getattr(module, SOURCES[name]) if name in SOURCES else module
