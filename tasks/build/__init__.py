"""Corpora from their sources: what anyone can fetch in, sharded records and a manifest out.

A corpus is read by a `Source`, one class per corpus; everything else is the same for all:

    source.py      what a reader is: units to open, documents read from them, notes of what was left out
    pipeline.py    a build: parts.py reads shards of units, plan.py makes splits and drops duplicates (duplicates.py),
                   pack.py writes the record files (records.py); workers.py is Apache Beam; drafts.py is where it goes
    manifest.py    what a build says about itself; verify.py compares it with what is there
    catalogue.py   names of corpora -> their readers

    arxiv.py       papers: submission.py and paper.py put one together, tex.py looks through its files, snapshot.py
                   knows arXiv's metadata
    github.py      repositories: projects.py finds them (clones.py, exports.py), code.py chooses and orders their files,
                   licences.py recognises licences
    isabelle.py    proofs: roots.py reads ROOT files, `tasks.theories` orders theories
    pg19.py, c4.py from the published files, or from TFDS (tfds.py)

What strangers made is opened by archives.py and flow.py (bounded), folders.py and lines.py; text.py makes text of it.
enwik8.py, imagenet64.py and wmt14.py are no documents: laidout.py checks them and puts them where their tasks look.
"""
