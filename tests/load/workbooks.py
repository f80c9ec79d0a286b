"""Workbooks made by hand, with whatever may be wrong with them."""

import zipfile
from collections.abc import Mapping, Sequence
from io import BytesIO

_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'

STYLES = (0, 14, 22, 164)
"""Number formats: general, a date, a date with a time, and 0000."""


def text(value: str) -> str:
    return f'<c t="inlineStr"><is><t>{value}</t></is></c>'


def number(value: float | str, style: int = 0) -> str:
    return f'<c s="{style}"><v>{value}</v></c>'


def sheet(rows: Sequence[Sequence[str]], after: str = "", head: str = _HEAD) -> str:
    lines = "".join(f"<row>{''.join(cells)}</row>" for cells in rows)
    return f"{head}<worksheet {_MAIN}><sheetData>{lines}</sheetData>{after}</worksheet>"


def workbook(sheets: Mapping[str, str], hidden: Sequence[str] = ()) -> bytes:
    names = list(sheets)
    listed = "".join(
        f'<sheet name="{name}" sheetId="{place}" r:id="r{place}" state="{"hidden" if name in hidden else "visible"}"/>'
        for place, name in enumerate(names, 1)
    )
    relations = "".join(
        f'<Relationship Id="r{place}" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet{place}.xml"/>'
        for place in range(1, len(names) + 1)
    )
    styles = "".join(f'<xf numFmtId="{format_}"/>' for format_ in STYLES)
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "_rels/.rels",
            f'{_HEAD}<Relationships {_PACKAGE}><Relationship Id="r1" Type="{_RELATIONS}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        archive.writestr(
            "xl/workbook.xml",
            f'{_HEAD}<workbook {_MAIN} xmlns:r="{_RELATIONS}"><sheets>{listed}</sheets></workbook>',
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            f'{_HEAD}<Relationships {_PACKAGE}>{relations}<Relationship Id="s" Type="{_RELATIONS}/styles" '
            'Target="styles.xml"/></Relationships>',
        )
        archive.writestr(
            "xl/styles.xml",
            f'{_HEAD}<styleSheet {_MAIN}><numFmts><numFmt numFmtId="164" formatCode="0000"/></numFmts>'
            f"<cellXfs>{styles}</cellXfs></styleSheet>",
        )
        for place, content in enumerate(sheets.values(), 1):
            archive.writestr(f"xl/worksheets/sheet{place}.xml", content)
    return data.getvalue()
