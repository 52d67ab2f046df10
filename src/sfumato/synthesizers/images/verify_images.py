"""Verify a generator of images: derive its cost again, and check that its files agree.

The purchases follow from the method, the canvas and the noise multiplier; they cost what is claimed; certificate,
``generator.json`` and recipe agree; the state of the model is valid and nothing else is stored; every drawn image has
the size of the canvas, and a label of one of its classes.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from sfumato.budget.differential_privacy import read_events
from sfumato.data.certificate import Certificate, read_plain
from sfumato.data.claim import DAMAGED, Claim, quote, reason_of, same_number, same_plain
from sfumato.data.recipe import Recipe
from sfumato.errors import SfumatoError
from sfumato.learners.training.released_model import read_arrays
from sfumato.synthesizers.catalogue import parameters_of
from sfumato.synthesizers.images.generator import IMAGES, ImageGenerator
from sfumato.synthesizers.stored import ARRAYS, FACTS
from sfumato.synthesizers.verification import keeps_its_promise, nothing_else, number_is_private, same_terms

__all__ = ["verify_images"]


def verify_images(folder: Path, certificate: Certificate) -> Iterator[Claim]:
    """Check the claims of a generator of images."""
    claim = "the generator can be read, its state is valid, and its images fit"
    try:
        found = ImageGenerator.read(folder, certificate)
        plain, arrays = read_plain(folder / FACTS), read_arrays(folder / ARRAYS)
        stated = certificate.parameters.get("events")
        events = read_events(stated) if found.plan is not None or stated else ()
    except (SfumatoError, *DAMAGED) as error:
        yield Claim(claim, False, reason_of(error))
        return
    yield Claim(claim, True, f"method {found.method.name}, {found.rows:,} images")
    yield from nothing_else(found, plain, arrays)
    yield _only_images(folder)
    derived = [] if found.plan is None else [one.to_dict() for one in found.plan.events]
    same = same_plain(certificate.parameters.get("events"), derived)
    yield Claim("its events follow from its method, canvas and noise", same, f"{len(derived)} purchases")
    if found.plan is None:
        yield from _promises_nothing(certificate)
        yield same_terms(found, certificate, ["epsilon"])
    else:
        yield from keeps_its_promise(found, certificate, events)
        yield same_terms(found, certificate)
    columns = len(certificate.schema.columns)
    yield Claim("it has no columns", not columns and not certificate.schema.constraints, f"{columns} of them")
    yield _recipe(folder, found, certificate)
    rows = certificate.claims.get("rows")
    yield Claim(f"rows is {quote(rows)}", same_number(rows, found.rows), found.rows)
    yield from number_is_private(certificate)
    yield Claim.unchecked("its noise was drawn as described, and from the data", "the noisy numbers do not show it")


def _only_images(folder: Path) -> Claim:
    """Check that the file of images holds two arrays and no others."""
    claim = f"{IMAGES} holds images and labels alone"
    with zipfile.ZipFile(folder / IMAGES) as archive:
        names = sorted(archive.namelist())
        plain = not archive.comment and not any(one.comment for one in archive.infolist())
    same = names == ["images.npy", "labels.npy"] and plain
    return Claim(claim, same, "nothing else" if same else f"it has {quote(', '.join(names))}")


def _promises_nothing(certificate: Certificate) -> Iterator[Claim]:
    """Check that a method which guarantees nothing claims nothing else."""
    guarantees, claimed = len(certificate.guarantees), certificate.claims.get("epsilon")
    yield Claim("nothing is guaranteed: the method is there for comparison", not guarantees, f"{guarantees} guarantees")
    yield Claim(f"epsilon is {quote(claimed)}", claimed == "inf", "inf")


def _recipe(folder: Path, found: ImageGenerator, certificate: Certificate) -> Claim:
    claim = "the recipe says the same"
    try:
        recipe = Recipe.of_release(folder, "synthesize")
    except SfumatoError as error:
        return Claim(claim, False, reason_of(error))
    own = {
        "method": found.method.name,
        "parameters": parameters_of(found.method),
        "epsilon": None if found.plan is None else found.epsilon,
        "delta": None if found.plan is None else found.delta,
        "classes": found.canvas.classes,
        "style": found.style,
        "rows": recipe.options.get("rows") and certificate.claims.get("rows"),
        "seed": certificate.parameters.get("seed"),
        **{name: recipe.options.get(name) for name in ("data", "full", "public")},
    }
    same = same_plain(recipe.options, own) and recipe.schema == certificate.schema
    return Claim(claim, same, "the same" if same else "another method, cost, style, seed, or other classes")
