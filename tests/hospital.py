"""A made-up hospital extract, as such files are: several languages, gaps, dates, notes, and one person with many rows.

Nobody in it exists. `planted` lists what must never be found in a release or in anything written about one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from random import Random

__all__ = ["LANGUAGES", "Extract", "extract"]

_GIVEN = [
    "Ada",
    "Bruno",
    "Chloé",
    "Dörte",
    "Émile",
    "Fatima",
    "Günther",
    "Hélène",
    "Ilona",
    "Jürgen",
    "Karla",
    "Léon",
    "Märta",
    "Noël",
    "Otto",
    "Paula",
]
_FAMILY = [
    "Abendroth",
    "Bäcker",
    "Célestin",
    "Dubreuil",
    "Eßer",
    "Fontaine",
    "Größl",
    "Hallström",
    "Ivarsson",
    "Jäger",
    "Köhler",
    "Lefèvre",
    "Müßig",
]
_CODES = ["E11.9", "I10", "J45.0", "K21.9", "C50.9", "F32.1", "N18.3", "M54.5", "I25.1", "G40.9", "E78.0", "J18.9"]
_NOTES = {
    "en": "{name} was seen on {day}. Reports pain since Monday; call back on {phone}.",
    "de": "{name} kam am {day}. Klagt seit Montag über Schmerzen; Rückruf unter {phone}.",
    "fr": "{name} est venu le {day}. Douleurs depuis lundi; rappeler au {phone}.",
}
_HEADERS = {
    "en": "patient_id name email phone birth_date admitted sex zip icd10 hba1c creatinine note",
    "de": "Patientennummer Name E-Mail Telefon Geburtsdatum Aufnahme Geschlecht PLZ Diagnose HbA1c Kreatinin Bemerkung",
    "fr": "numéro_patient nom courriel téléphone date_de_naissance admission sexe code_postal diagnostic HbA1c "
    "créatinine remarques",
}
_DAYS = {"en": "%Y-%m-%d", "de": "%d.%m.%Y", "fr": "%d/%m/%Y"}
_SEXES = {"en": "fm", "de": "wm", "fr": "fh"}

LANGUAGES = tuple(_HEADERS)


@dataclass(frozen=True)
class Extract:
    """The extract: its columns by their English names, its cells as texts, and what must not leave."""

    language: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    people: int
    planted: tuple[str, ...]

    def column(self, english: str) -> str:
        """Return what a column is called in this extract."""
        return self.header[_HEADERS["en"].split().index(english)]

    def text(self, separator: str = ",") -> str:
        """Return the extract as the text of a CSV file."""
        return "".join(separator.join(_quoted(cell, separator) for cell in row) + "\n" for row in self._lines())

    def _lines(self) -> tuple[tuple[str, ...], ...]:
        return (self.header, *self.rows)


def extract(language: str = "en", *, people: int = 400, visits: int = 1, seed: int = 0) -> Extract:
    """Make an extract: each person has up to `visits` rows."""
    chance, header = Random(seed), tuple(_HEADERS[language].split())
    rows: list[tuple[str, ...]] = []
    planted: set[str] = set()
    for number in range(people):
        name = f"{chance.choice(_GIVEN)} {chance.choice(_FAMILY)}-{number:04d}"
        token, mail = f"P{7_300_000 + 37 * number}", f"{number:04d}.{chance.randrange(10**6):06d}@example.org"
        phone = f"+49 30 {chance.randrange(10**7, 10**8)}"
        born = date(1930, 1, 1) + timedelta(days=chance.randrange(28_000))
        sex, place = chance.choice(_SEXES[language]), f"{chance.choice((1067, 1069, 4109, 10115, 80331)):05d}"
        for _ in range(1 + chance.randrange(visits)):
            seen = datetime(2023, 1, 1) + timedelta(minutes=chance.randrange(525_600))
            note = _NOTES[language].format(name=name, day=seen.strftime(_DAYS[language]), phone=phone)
            labs = [_lab(chance, 4.5, 12, language), _lab(chance, 0.4, 9, language)]
            day, when = born.strftime(_DAYS[language]), seen.strftime(_DAYS[language] + " %H:%M:%S")
            code = chance.choice(_CODES)
            rows.append((token, name, mail, phone, day, when, sex, place, code, *labs, note))
            planted |= {token, name, mail, phone, day, when, note}
    return Extract(language, header, tuple(rows), people, tuple(sorted(planted)))


def _lab(chance: Random, low: float, high: float, language: str) -> str:
    if chance.random() < 0.15:
        return ""
    number = f"{chance.uniform(low, high):.2f}"
    return number if language == "en" else number.replace(".", ",")


def _quoted(cell: str, separator: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(sign in cell for sign in (separator, '"', "\n")) else cell
