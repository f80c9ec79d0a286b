"""The word lists behind the offline model's choices: licence families, audiences, stop words."""

from __future__ import annotations

import re
from typing import Final

LICENCE_FAMILIES: Final = re.compile(
    r"""
    (?P<weak_copyleft>\blgpl|\blesser[ ]general[ ]public|\blibrary[ ](?:or[ ]lesser[ ])?general[ ]public
        |\bmpl\b|\bmozilla[ ]public|\bepl\b|\beclipse[ ]public|\bcddl\b|\bcommon[ ]development[ ]and[ ]distribution)
    |(?P<copyleft>\ba?gpl|\baffero|\bgeneral[ ]public[ ]licen[cs]e|\beupl\b|\bosl-|\bsspl\b|\bcc-by-sa\b)
    |(?P<public_domain>\bpublic[ ]domain|\bunlicense\b|\bcc0\b|\b0bsd\b|\bwtfpl\b)
    |(?P<permissive>\bmit\b|\bbsd\b|\bapache\b|\bisc\b|\bpsf\b|\bpython[ ]software[ ]foundation|\bzlib\b|\bzope[ ]public
        |\bzpl\b|\bartistic\b|\bblueoak\b|\bbsl-1|\bboost[ ]software|\bhpnd\b|\bhistorical[ ]permission|\bupl\b
        |\bpostgresql[ ]licen[cs]e|\bpermission[ ]is[ ]hereby[ ]granted|\bredistribution[ ]and[ ]use[ ]in[ ]source)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What names a family. The first mention in a text decides, because a licence names itself before others."""

PROPRIETARY: Final = re.compile(
    r"\bproprietary\b|\bcommercial licen[cs]e|\bend[- ]user licen[cs]e|\beula\b|\bclosed source|\ball rights reserved",
    re.IGNORECASE,
)
"""Asked only after every open family: BSD texts, too, reserve all rights before they grant some."""

FAMILY_SPELLINGS: Final[dict[str, tuple[str, ...]]] = {
    "weak_copyleft": ("weakcopyleft", "limitedcopyleft", "lesser", "copyleft"),
    "copyleft": ("copyleft", "strongcopyleft", "gpl", "reciprocal"),
    "public_domain": ("publicdomain", "permissive"),
    "permissive": ("permissive",),
    "proprietary": ("proprietary", "commercial", "closed", "closedsource"),
    "unknown": ("unknown", "unclear", "other", "notstated", "none", "nolicence", "nolicense", "unspecified"),
}
"""How a schema may spell a family, the closest first: letters of the choice only, in lower case."""

FALLBACKS: Final = ("unknown", "unclear", "other", "none", "general", "generalpublic", "everyone", "developers")
"""What is picked, in this order and where it is a choice, when nothing in the text speaks for any choice."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOPICS: Final[tuple[tuple[str, str], ...]] = (
    (
        "data science scientist analyst analytics machine learning statistician",
        "dataframe dataset analytics analysis statistics statistical numerical numpy pandas arrow columnar"
        " notebook jupyter machine learning model training tensor scientific plot visualization query polars parquet",
    ),
    (
        "data engineer engineering pipeline warehouse",
        "pipeline orchestration orchestrator etl elt warehouse ingestion lineage asset partition backfill batch dagster"
        " spark streaming catalog parquet arrow schema sql database",
    ),
    (
        "operator operation ops devops sysadmin administrator admin sre infrastructure platform",
        "deploy deployment server cluster monitoring monitor kubernetes docker container daemon process system cpu"
        " memory disk network logging health metrics infrastructure administration watchdog supervisor production"
        " certificate",
    ),
    (
        "web frontend backend",
        "http https web websocket asgi wsgi server request response url browser html css router framework rest api"
        " graphql cookie session client template",
    ),
    (
        "security cryptographer auditor",
        "security secure cryptography cryptographic encryption tls ssl certificate token signature vulnerability"
        " authentication password jwt hash key",
    ),
    (
        "tester testing quality qa",
        "test testing pytest unittest coverage assertion fixture property-based mock flaky failing suite",
    ),
    (
        "packager packaging maintainer library author release distributor",
        "packaging wheel sdist build-backend distribution pypi pip editable metadata version classifier installer",
    ),
    (
        "researcher scientist academic student teacher educator",
        "research paper academic course tutorial teach learning science scientific experiment citation",
    ),
    (
        "database administrator dba",
        "database postgresql postgres mysql sqlite sql query transaction migration driver adapter schema orm",
    ),
    (
        "end user consumer writer author business analyst everyone general public",
        "desktop application game document office editor spreadsheet email photo music",
    ),
    (
        "developer programmer coder engineer software",
        "library package api python code module function class decorator type typing parser syntax sdk bindings install"
        " import framework compiler linter formatter debug async asyncio command-line cli terminal implementation"
        " interface",
    ),
)

TOPIC_WORDS: Final[tuple[tuple[frozenset[str], frozenset[str]], ...]] = tuple(
    (_words(names), _words(words)) for names, words in _TOPICS
)
"""(the words of a choice that name the topic, the words of a text that speak for it), singular, in lower case."""

STOP_WORDS: Final = _words(
    "a about above after all also an and any are as at be because been but by can do does each for from had has have"
    " how if in into is it its like many may more most much must new no not of on one only or other our out over own"
    " same see should so some such than that the their them then there these they this those to under up use used user"
    " uses using very via want was we were what when where which while who whom whose will with would you your"
)
"""Words that carry no topic."""
