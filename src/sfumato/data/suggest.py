"""Propose a role and a kind for each column of a table, with reasons.

The first of `_RULES` that applies gives a column its role and its reason. A rule sees the name of the column and a
sample of its distinct values; a reason describes their form and their number, and never quotes one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

import polars as pl

from sfumato.data.schema import Column, Kind, Role, Schema
from sfumato.data.table import Table
from sfumato.errors import ColumnError

__all__ = ["PersonKey", "against_release", "key_of", "names_someone", "singles_out", "suggest", "words_of"]

_SAMPLE = 10_000  # distinct values that are examined
_ONE_IN = 5  # of them may look different: 80 % must look alike
_FEWEST_ROWS = 20  # in fewer rows, values differ by chance
_FLAGS = 3  # so few values that are words answer a question: yes, no, unknown
_NEARLY_ALL = 0.9  # of the values of a column differ: as good as all
_MANY_VALUES = 50  # a category with more has rare values
_MANY = 0.5  # of the values of a free text, so many differ
_LONG = 40  # characters of a free text, on average; half of it if its name says that it is one


class PersonKey(IntEnum):
    """How well a column tells people apart, by its name."""

    NONE = 0
    """Its name says nothing."""
    NAME = 1
    """It holds names or addresses, which several people may share, or names another person."""
    SOME = 2
    """It is some number or address."""
    PERSON = 3
    """It is the number of a person."""


def key_of(name: str) -> PersonKey:
    """Return how well a column of this name tells people apart.

    Examples
    --------
    >>> [key_of(name).name for name in ("patient_id", "id", "last_name", "age")]
    ['PERSON', 'SOME', 'NAME', 'NONE']
    """
    words = words_of(name)
    if _PERSON_NUMBERS.search(words):
        return PersonKey.PERSON
    if _PERSON_NAMES.search(words) or _PERSONAL.search(words):
        return PersonKey.NAME
    is_known = (_IDENTIFIERS.search(words) or _IDS.search(words)) and not _QUASI.search(words)
    return PersonKey.SOME if is_known and not _SENSITIVE.search(words) else PersonKey.NONE


def suggest(table: Table | Any) -> Schema:
    """Propose a role and a kind for every column, each with its reason.

    Roles that a table already has are ignored; its bounds, domains and hierarchies are kept if they fit the proposed
    kind.

    Examples
    --------
    >>> import polars as pl
    >>> schema = suggest(pl.DataFrame({"zip": [12345, 12346], "salary": [1000.5, 2000.0]}))
    >>> for column in schema.columns:
    ...     print(column.role.value, column.kind.value, "-", column.reason)
    quasi category - its name suggests something that others know about a person; its numbers are codes, not quantities
    sensitive number - its name suggests something that a person may want to keep private
    """
    table = Table.of(table)
    if any(column.kind is Kind.AUTO for column in table.schema.columns):  # only the rows of a text file can tell
        table = Table(table.frame, table.schema)
    return Schema(_proposal(table, column) for column in table.schema.columns)


@dataclass(frozen=True)
class Facts:
    """The facts about a column that the rules use."""

    words: str
    kind: Kind
    rows: int = 0
    present: int = 0
    distinct: int = 0
    is_whole: bool = False
    is_dates: bool = False
    is_truth: bool = False
    texts: Sequence[str] = ()
    trouble: str = ""


class _Look(NamedTuple):
    """The form of some values: a pattern, and a check of those that match it."""

    things: str
    shape: re.Pattern[str]
    holds: Callable[[str], bool] = bool

    def fits(self, texts: Sequence[str]) -> bool:
        """Return whether most texts look like this; stop as soon as too many do not."""
        others = (text for text in texts if not (self.shape.fullmatch(text) and self.holds(text)))
        return bool(texts) and next(islice(others, len(texts) // _ONE_IN, None), None) is None


def _is_iban(text: str) -> bool:
    plain = text.replace(" ", "")
    return int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1  # ISO 7064, mod 97-10


def _is_card(text: str) -> bool:
    digits = [int(sign) for sign in reversed(text) if sign.isdigit()]
    return sum(digits[::2] + [sum(divmod(2 * digit, 10)) for digit in digits[1::2]]) % 10 == 0  # Luhn


def _is_phone(text: str) -> bool:
    return 7 <= sum(map(str.isdigit, text)) <= 20 and not _THOUSANDS.fullmatch(text)


_DAY, _MONTH, _TIME = "(?:0?[1-9]|[12][0-9]|3[01])", "(?:0?[1-9]|1[0-2])", "(?:[T ][0-9:.,+Z -]+)?"
_DATE = re.compile(rf"(?:[0-9]{{4}}[-/. ]{_MONTH}[-/. ]{_DAY}|{_DAY}[-/. ]{_DAY}[-/. ][0-9]{{4}}){_TIME}")
_THOUSANDS = re.compile("[0-9]{1,3}(?:[ .][0-9]{3})+")
# Without a plus or brackets, only the groups that phone numbers have: no numbers, ranges or ZIP+4 codes.
_PHONE = r"""(?x)(?: \+[0-9][0-9\ ()./-]{5,}[0-9]
    | (?:(?:\+|00)?1[\ .-]?)? \([0-9]{2,5}\)\ ?[0-9]{3,4}[\ .-]?[0-9]{3,4}
    | (?:(?:00)?1[\ .-])? [0-9]{2,5} (?:[\ ./-][0-9]{3,4}){2,3}
    | 0[0-9] (?:[\ .-][0-9]{2}){4}
    | 0[0-9]{1,4}[\ /-][0-9]{5,8} ) (?:\ ?(?:x|ext\.?)\ ?[0-9]{1,5})?"""
_FLAG = re.compile(r"[^\W\d]*|[0-2]")  # yes, none, A192 is not one
_PERSON = _Look("names of people", re.compile(r"[^\W\d_]{1,20}(?:['’. -]{1,2}[^\W\d_]{1,20}){0,3}\.?"), str.istitle)
_DECIMALS = _Look("numbers with decimals", re.compile(r"[<>~]?\s?[-+]?[0-9]+(?:[.,][0-9]+)?(?:[eE][-+]?[0-9]+)?"))
_LONG_TEXTS = "its texts are long and mostly different"
_LOOKS = (
    _Look("e-mail addresses", re.compile(r"[^@\s]+@[^@\s]+\.[^@\s.]+")),
    _Look("US social security numbers", re.compile("[0-9]{3}-[0-9]{2}-[0-9]{4}")),
    _Look("IP addresses", re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?:\.|$)){4}")),
    _Look("IP addresses", re.compile("(?i)(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|[0-9a-f:]{0,37}::[0-9a-f:]{0,37}")),
    _Look("bank account numbers (IBAN)", re.compile("[A-Za-z]{2}[0-9]{2}(?: ?[A-Za-z0-9]){11,30}"), _is_iban),
    _Look("payment card numbers", re.compile("[2-6][0-9]{3}(?:[ -]?[0-9]){9,15}"), _is_card),
    _Look("phone numbers", re.compile(_PHONE), _is_phone),
)


def _names(phrases: str) -> re.Pattern[str]:
    """Match names that hold one of these phrases as whole words, or its plural in -s."""
    whole = re.sub(r"\s+(?=[|_])", "", phrases)  # a phrase may go on in the next line
    return re.compile(rf"(?:^|_)(?:{'|'.join(whole.split())})s?(?:_|$)")


# Of each role first English, then German, French, Spanish and Italian words; accents are folded: see `words_of`.
_IDENTIFIERS = _names(r"""
    ^name$ (first|last|middle|given|family|full|maiden|user|nick)_?name [fl]name surname forename initials name_of
    (patient|person|customer|client|employee|member|subject|participant|student|user|doctor)_?(name|number|num|no|nr|id)
    (record|case|chart|policy|insurance|beneficiary|membership|certificate|tax|serial|vehicle|card)_?(number|num|no|nr|id)
    (account|device)_?(holder|serial|number|num|no|nr|id) ^(patient|customer|employee|user|account)$ bank_account iban
    e_?mail (tele)?phone tel ^mobile$ mobile_(phone|number) fax address(es)? street url website login ip imei ssn
    social_security national_id passport nino aadhaar cpf pesel mrn nhs_number medical_record next_of_kin credit_card
    licen[cs]e number_plate vin photo fingerprint biometric signature

    (vor|nach|zu|ruf|familien|geburts|madchen|maedchen|benutzer|patienten|kunden)name
    (patient(en)?|versicherten?|versicherungs|krankenversicherungs|sozialversicherungs|kunden|mitglieds|mitarbeiter
        |personal|fall|akten|konto|kreditkarten|karten|ausweis|personalausweis|pass|steuer|haus|telefon|handy|mobil|fax)
        _?(nummer|nr|id|kennung)
    aktenzeichen steueridentifikationsnummer kvnr telefon handy mobiltelefon rufnummer anschrift (mail)?adresse strasse
    hausnummer kontoinhaber kreditkarte reisepass(nummer)? personalausweis kfz_?kennzeichen nummernschild unterschrift

    ^nom$ prenoms? nom_(de_|d_)?(famille|naissance|usage|jeune_fille|patient|client|utilisateur|epouse) nom_prenom
    patronyme n(o|um|umero)?_(de_|d_)?(patient|client|dossier|adherent|assure|securite_sociale|secu|telephone|tel|compte
        |passeport|carte|police) identifiant_(patient|client) nir nss ipp courriel telephone adresses? rue
    matricule rib plaque_(d_)?immatriculation

    ^nombres?$ nombre_(completo|paciente|y_apellidos?|del?_\w+) apellidos? correo(_electronico)? telefono movil celular
    direccion calle domicilio dni nif curp cedula pasaporte historia_clinica nhc ^(paciente|usuario)$
    id_(paciente|cliente)
    n(um|umero)?_(de_)?(paciente|cliente|historia|afiliado|seguridad_social|cuenta|tarjeta|telefono|expediente)

    ^nome$ cognome nome_(cognome|completo|paziente|utente) cognome_nome codice_(fiscale|paziente|cliente) cellulare
    tessera_sanitaria indirizzo posta_elettronica passaporto carta_(d_)?identita targa partita_iva ^paziente$
    id_(paziente|utente) n(um|umero)?_(di_)?(paziente|cliente|telefono|conto|cartella|tessera) cartella_clinica""")
_PERSON_NUMBERS = _names(r"""
    (patient|person|customer|client|employee|member|subject|participant|student|user|insured)_?(number|num|no|nr|id)
    ^(patient|customer|employee|member|user)$ e_?mail courriel correo mrn ssn nhs_number social_security(_\w+)?
    national_id nino
    (patient(en)?|versicherten?|kunden|mitglieds|mitarbeiter|personal|sozialversicherungs|krankenversicherungs)
        _?(nummer|nr|id) kvnr
    n(o|um|umero)?_(de_)?(patient|client|adherent|assure|securite_sociale|paciente|cliente|afiliado|paziente)
    id_(patient|client|paciente|cliente|paziente) identifiant_(patient|client) nir nss ipp nhc dni nif codice_fiscale
    ^(paciente|paziente)$""")
_PERSON_NAMES = _names(r"""
    ^(name|nom|nombres?|nome)$ (first|last|middle|given|family|full|maiden|nick)_?name [fl]name surname forename
    initials (vor|nach|zu|ruf|familien|geburts)name prenoms? nom_\w+ nombre_\w+ apellidos? cognome nome_\w+ address(es)?
    street adresse anschrift strasse rue direccion calle indirizzo (doctor|arzt|medecin|medico)\w*""")
_IDS = _names("id identifier uuid guid uid pid kennung identifiant identificador identificativo")
_PERSONAL = _names("^(first|last|given|family|middle|maiden|vorname|nachname)$")
_TEXTS = _names(r"""
    note comment remark free_?text narrative description anamnesis history_of \w*bericht
    bemerkung(en)? kommentare? freitext notiz(en)? anmerkung(en)? beschreibung anamnese befundtext arztbrief
    remarque commentaire observation texte_libre compte_rendu observacion(es)? comentario nota texto_libre
    anotacion(es)? osservazion[ei] commento commenti note_\w+ testo_libero""")
_SENSITIVE = _names(r"""
    disease diagnos[ei]s diagnosed dx icd illness(es)? symptom comorbidit(y|ies) (medical|health)_(condition|history)
    health_status hiv aids cancer tumou?r diabet(es|ic) pregnan(t|cy) abortion mental psychiatr\w+ depression disorder
    disab(led|ility|ilities) medication drug prescription treatment therap(y|ies) surger(y|ies) allerg(y|ies) genetic
    genotype genome dna (lab|test)_result addiction alcohol smok(er|ing) cause_of_death
    income salar(y|ies) wage earning debt loan mortgage balance wealth net_worth bankrupt\w* pension
    credit_(score|rating|limit|history) religio(n|us) faith belief politic\w* ^party$ vote union_member\w* sexual\w*
    lgbt\w* crim(e|inal) convict\w+ offen[cs]e arrest\w* felon\w* prison\w* immigration_status

    (haupt|neben|aufnahme|entlass(ungs)?)?diagnosen? befunde? krankheit(en)? erkrankung(en)? medikamente? medikation
    behandlung(en)? therapien? allergien? schwanger(schaft)? behinderung todesursache einkommen gehalt lohn schulden
    rente vermogen konfession partei straftat(en)? vorstrafen?

    diagnostic maladie symptome traitement medicament allergie grossesse enceinte handicap cause_(de_|du_)?deces revenu
    salaire dette retraite

    diagnostico enfermedad(es)? sintoma tratamiento medicamento medicacion alergia embarazo discapacidad
    causa_(de_)?muerte ingresos salario sueldo deuda partido

    diagnosi malattia malattie sintom[oi] trattamento terapi[ae] farmac[oi] allergi[ae] gravidanza disabilita
    causa_(di_)?morte reddito stipendio debito pensione religione partito""")
_QUASI = _names(r"""
    age birth\w* date_?of_?birth born dob yob sex gender zip(_?code)? postal\w* post_?code cit(y|ies) town village
    municipality district count(y|ies) state countr(y|ies) region province nationalit(y|ies) citizenship race ethnic\w*
    ancestry marital\w* education occupation job profession employer relationship language height lat latitude lon lng
    longitude location residence household_size veteran

    ^(alter|geb|land|ort)$ geb_?(dat|datum|tag|jahr) geburts(datum|tag|jahr|ort|land) sterbedatum geschlecht plz
    postleitzahl wohnort stadt gemeinde landkreis bundesland staatsangehorigkeit nationalitat familienstand beruf
    ausbildung bildung(sabschluss)? schulabschluss arbeitgeber sprache herkunft korpergrosse

    (date_|annee_|lieu_)?(de_)?naissance date_naiss ne_le sexe genre code_postal ^cp$ ville commune departement pays
    nationalite etat_civil situation_(familiale|matrimoniale) metier employeur (niveau_)?(d_)?etudes langue

    edad (fecha_|ano_|lugar_)?(de_)?nacimiento fecha_nac sexo genero codigo_postal ciudad municipio provincia pais
    nacionalidad estado_civil profesion ocupacion educacion (nivel_)?(de_)?estudios idioma

    ^eta$ (data_|anno_|luogo_)?(di_)?nascita sesso genere ^cap$ codice_(avviamento_)?postale citta comune regione paese
    nazionalita cittadinanza stato_civile professione occupazione istruzione titolo_(di_)?studio lingua""")
_CODES = _names(r"""
    zip(_?code)? postal\w* post_?code code fips icd id sex gender race ethnic\w* religion nationality
    plz postleitzahl geschlecht code_postal cp sexe codigo_postal sexo ^cap$ codice_postale sesso""")


def _looks_like(facts: Facts) -> str:
    return next((f"its values look like {look.things}" for look in _LOOKS if look.fits(facts.texts)), "")


def _named(names: re.Pattern[str], what: str) -> Callable[[Facts], str]:
    return lambda facts: f"its name suggests something that {what}" if names.search(facts.words) else ""


def _flagged(facts: Facts) -> bool:
    """Return whether a column only says yes or no, such as whether a person has a telephone."""
    few = facts.present >= _FEWEST_ROWS and facts.distinct <= _FLAGS
    return few and (facts.is_truth or (bool(facts.texts) and all(map(_FLAG.fullmatch, facts.texts))))


def _identifying(names: re.Pattern[str]) -> Callable[[Facts], str]:
    named = _named(names, "names a person")

    def rule(facts: Facts) -> str:
        is_measured = facts.kind is Kind.NUMBER and bool(facts.present) and not facts.is_whole
        return "" if is_measured or _flagged(facts) else named(facts)

    return rule


def _name_like(facts: Facts) -> str:
    """Recognise names of people in a column that is called, say, first: its values must look like names too."""
    names = _PERSONAL.search(facts.words) and facts.distinct > _FLAGS and _PERSON.fits(facts.texts)
    return "its values look like names of people" if names else ""


def _free(facts: Facts) -> str:
    """Recognise free text, in which anything may be written."""
    length = sum(map(len, facts.texts)) / max(1, len(facts.texts))
    least = _LONG / 2 if _TEXTS.search(facts.words) else _LONG
    if facts.kind not in (Kind.CATEGORY, Kind.TEXT) or facts.is_dates or length <= least:
        return ""
    return _LONG_TEXTS if facts.distinct >= _MANY * facts.present else ""


def _dated(facts: Facts) -> str:
    return "it holds dates, which others may know" if facts.kind is Kind.DATE or facts.is_dates else ""


def _is_measured(facts: Facts) -> bool:
    """Return whether a column holds numbers with decimals, perhaps as texts: unique ones do not name anyone."""
    if facts.kind is Kind.NUMBER:
        return not facts.is_whole
    return _DECIMALS.fits(facts.texts) and 2 * sum("." in one or "," in one for one in facts.texts) > len(facts.texts)


def _unique(facts: Facts) -> str:
    if _is_measured(facts) or facts.distinct < max(_FEWEST_ROWS, facts.present):
        return ""
    return "every row has its own value" if facts.present == facts.rows else "no two rows with a value share it"


def _many_valued(facts: Facts) -> str:
    limit = min(_MANY_VALUES, max(_FEWEST_ROWS, facts.present) // 2)  # in a small table, fewer values are many
    if facts.kind not in (Kind.CATEGORY, Kind.TEXT) or facts.distinct <= limit:
        return ""
    return f"it has {facts.distinct} distinct values, more than {limit}, and a rare one can single a person out"


def _rest(facts: Facts) -> str:
    few = {0: "it has no values", 1: "it has a single value"}
    return facts.trouble or few.get(facts.distinct, "nothing in its name or values suggests another role")


_NAMING = (_looks_like, _identifying(_IDENTIFIERS), _name_like)
_RULES: tuple[tuple[Role, Callable[[Facts], str]], ...] = (
    *((Role.IDENTIFIER, rule) for rule in _NAMING),
    (Role.SENSITIVE, _named(_SENSITIVE, "a person may want to keep private")),
    (Role.QUASI, _named(_QUASI, "others know about a person")),
    (Role.IDENTIFIER, _identifying(_IDS)),  # here, because a state_id or a job_id names no one
    (Role.QUASI, _dated),
    (Role.IDENTIFIER, _unique),  # here, because a salary that differs in every row is still a salary
    (Role.IDENTIFIER, _free),
    (Role.QUASI, _many_valued),
    (Role.OTHER, _rest),
)


def against_release(facts: Facts) -> str:
    """Return why a column should not be released as it is, by its name and values; an empty text if it may be.

    Examples
    --------
    >>> table = Table(pl.DataFrame({"ward": ["A", "B", "A"], "phone": ["+49 30 1234567", "+49 30 7654321", None]}))
    >>> [against_release(facts_of(table, column)) for column in table.schema.columns]
    ['', 'its values look like phone numbers']
    """
    role, reason = _judged(facts)
    reasons = (reason if role.is_identifier else "", facts.trouble, _free(facts))
    return "; ".join(filter(None, dict.fromkeys(reasons)))


def singles_out(facts: Facts) -> str:
    """Return a reason if the dates or texts of a column single out nearly every row; measured numbers may do so.

    Examples
    --------
    >>> table = Table(pl.DataFrame({"seen": [f"2024-05-01 12:{minute:02}" for minute in range(60)]}))
    >>> singles_out(facts_of(table, table.schema["seen"]))
    'nearly every row has its own value'
    """
    if facts.kind is Kind.NUMBER or _is_measured(facts) or facts.is_truth or facts.distinct < _FEWEST_ROWS:
        return ""
    return "nearly every row has its own value" if facts.distinct >= _NEARLY_ALL * facts.present else ""


def names_someone(table: Table, column: Column) -> str:
    """Return why a column names people, however many distinct values it has; an empty text if it does not."""
    facts = facts_of(table, column)
    return next(filter(None, (rule(facts) for rule in _NAMING)), "")


def _judged(facts: Facts) -> tuple[Role, str]:
    return next((role, reason) for role, rule in _RULES if (reason := rule(facts)))


def _proposal(table: Table, column: Column) -> Column:
    facts = facts_of(table, column)
    role, reason = _judged(facts)
    kind, note = _kind(facts, role)
    reasons = "; ".join(filter(None, dict.fromkeys((reason, note))))
    bounds = column.bounds if kind is Kind.NUMBER else None
    dates = column.dates if kind is Kind.DATE else None
    return replace(column, role=role, kind=kind, bounds=bounds, dates=dates, reason=reasons)


def _kind(facts: Facts, role: Role) -> tuple[Kind, str]:
    """Return the kind of a column, corrected from that of its type, and the reason."""
    if facts.trouble:
        return Kind.TEXT, facts.trouble
    if facts.kind is Kind.NUMBER and facts.is_whole and (role.is_identifier or _CODES.search(facts.words)):
        return Kind.CATEGORY, "its numbers are codes, not quantities"
    if facts.kind is Kind.CATEGORY and facts.is_dates:
        return Kind.CATEGORY, "its texts look like dates and should be parsed"
    free = _free(facts)
    return (Kind.TEXT, free) if free else (facts.kind, "")


def facts_of(table: Table, column: Column) -> Facts:
    """Collect the facts about a column: the words of its name, the number and the form of its values."""
    words = words_of(column.name)
    try:
        values = table.column(column.name)
    except ColumnError:
        values = pl.Series(dtype=pl.Object)
    if values.dtype == pl.Object:
        return Facts(words, column.kind, trouble="its values are of different types")
    if values.dtype.is_nested():
        return Facts(words, column.kind, trouble="its values are lists or records")
    rows = len(values)
    if values.dtype.is_float():
        values = _whole(values.fill_nan(None))
    elif isinstance(values.dtype, pl.String | pl.Categorical | pl.Enum):
        values = values.cast(pl.String).str.strip_chars().replace("", None)
    values = values.drop_nulls()
    distinct = values.unique(maintain_order=True)  # in their order: the sample is always the same
    texts: list[str] = []
    if values.dtype == pl.String or values.dtype.is_integer():
        texts = list(map(str, distinct if len(distinct) <= _SAMPLE else distinct.sample(_SAMPLE, seed=0)))
    return Facts(
        words,
        column.kind,
        rows=rows,
        present=len(values),
        distinct=len(distinct),
        is_whole=values.dtype.is_integer(),
        is_truth=values.dtype == pl.Boolean,
        is_dates=bool(texts) and all(map(_DATE.fullmatch, texts)),
        texts=texts,
    )


def _whole(values: pl.Series) -> pl.Series:
    """Return floats as integers if they are: pandas turns whole numbers into floats where one is missing."""
    whole = values.cast(pl.Int64, strict=False)
    return whole if whole.null_count() == values.null_count() and (whole == values).all() else values


def words_of(name: str) -> str:
    """Write a name such as zipCode, ZIP-Code or "zip code" as zip_code, without accents.

    Examples
    --------
    >>> words_of("ZIP-Code"), words_of("patientID"), words_of("Prénom"), words_of("Straße")
    ('zip_code', 'patient_id', 'prenom', 'strasse')
    """
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    name = "".join(sign for sign in plain if not unicodedata.combining(sign))
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return "_".join(re.findall(r"[^\W\d_]+|\d+", parted)).lower()
