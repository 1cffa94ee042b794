"""Corpora from their sources: what anyone can fetch in, sharded records and a manifest out.

source.py      Unit, Document, Source: what a reader of a corpus is; one file per corpus implements it
"""
