"""A client sends encrypted records, and a server with a model answers without being able to read them.

The server publishes a `Question`: sizes and parameters, no weights. The client makes keys for it, sends the public ones
once, then records. Server and client must keep to the protocol; the server learns nothing about a record. The client
learns the scores, from which many queries can reconstruct a small model: that is not prevented here. A client must
not show decrypted scores to the server: errors of CKKS depend on the key (Li and Micciancio 2021).

A layer is a product of a matrix with an encrypted vector by diagonals (Halevi and Shoup 2014), with baby and giant
steps, on vectors that repeat: about 2 sqrt(outputs) + log2(inputs / outputs) rotations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, ModelError, ProtocolError
from sfumato.federation.encrypted.circuit import Circuit
from sfumato.federation.encrypted.records import Records
from sfumato.federation.secure.forms import form_of, from_bytes, galois_form
from sfumato.federation.secure.seal import CkksParameters, seal, to_bytes
from sfumato.federation.wire import Message, decode, encode

__all__ = ["Client", "Question", "Server"]

Floats = NDArray[np.float64]

_MOST_FACTOR = 2**10  # larger, and the error of a score would be felt
_MOST_LINEAR = 2**30  # of a linear regression, whose scores are amounts: the error is small beside their range


@dataclass(frozen=True)
class Question:
    """What a client must know of a model: its sizes, the range of its inputs and outputs, the coding, the encryption.

    Examples
    --------
    >>> from sfumato.federation.encrypted.circuit import Circuit
    >>> Question.of(Circuit((np.ones((2, 3)),), (np.zeros(2),))).steps
    (1, 2)
    """

    widths: tuple[int, ...]
    bound: float
    factor: float
    parameters: CkksParameters
    records: Records | None = None

    @classmethod
    def of(cls, circuit: Circuit) -> Question:
        """Choose the parameters for a model; a `ModelError` if its outputs have too large a range."""
        periods = [_power(one) for one in circuit.widths]
        parameters = CkksParameters.for_depth(circuit.depth, max(periods))
        factor = 2.0 ** max(0, math.ceil(math.log2(circuit.largest / parameters.range)))
        if factor > _most_factor(circuit.widths, circuit.classes):
            raise ModelError(
                f"an output of the model can be as large as {circuit.largest:.3g}, too large for encryption",
                hint="train with weight decay, or scale the inputs to a smaller range",
            )
        return cls(circuit.widths, circuit.bound, factor, parameters, circuit.records)

    def __post_init__(self) -> None:
        if self.parameters.depth != 2 * len(self.widths) - 3 or max(self.periods) > self.parameters.slots:
            raise ProtocolError("the parameters of the encryption do not fit the model")
        if self.records is not None and self.records.width != self.widths[0]:
            raise ProtocolError("the description of the records does not fit the model")

    @property
    def periods(self) -> tuple[int, ...]:
        """The distance at which the vectors before and after each layer repeat."""
        return tuple(_power(one) for one in self.widths)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """By how many places vectors are rotated."""
        found = {one for pair in zip(self.periods, self.periods[1:], strict=False) for one in _steps(*pair)}
        return tuple(sorted(found))

    def to_dict(self) -> Message:
        """Return plain values."""
        records = None if self.records is None else self.records.to_dict()
        return {
            "widths": list(self.widths),
            "bound": self.bound,
            "factor": self.factor,
            "parameters": asdict(self.parameters),
            "records": records,
        }

    @classmethod
    def from_dict(cls, plain: Message) -> Question:
        """Read what `to_dict` returned, of a stranger perhaps."""
        try:
            widths = tuple(int(one) for one in plain["widths"])
            given = CkksParameters(**plain["parameters"])
            bound, factor = float(plain["bound"]), float(plain["factor"])
            records = None if plain.get("records") is None else Records.from_dict(plain["records"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolError("the description of the model is damaged") from error
        if len(widths) < 2 or min(widths) < 1 or not (0 < bound < math.inf and 1 <= factor <= _most_factor(widths)):
            raise ProtocolError("the description of the model is damaged")
        return cls(widths, bound, factor, given, records)


class Client:
    """Holds the secret key: encrypts records and reads the answers.

    Examples
    --------
    >>> from sfumato.federation.encrypted.circuit import Circuit
    >>> server = Server(Circuit((np.array([[1.0, -2.0, 0.5]]),), (np.array([0.25]),)))
    >>> client = Client(server.question)
    >>> session = server.connect(client.public_keys)
    >>> answer = server.answer(session, client.encrypt([0.5, 0.25, 1.0]))
    >>> client.decrypt(answer).round(3).tolist()
    [0.75]
    """

    def __init__(self, question: Question, *, secret: bytes | None = None) -> None:
        library, context = seal(), question.parameters.context
        self.question = question
        self._encoder = library.CKKSEncoder(context)
        self.public_keys = b""
        """What the server needs to compute, and may know; empty for a client that was made of its secret key."""
        if secret is None:
            keys = library.KeyGenerator(context)
            self._secret = keys.secret_key()
            elements = [question.parameters.element(one) for one in question.steps]
            self.public_keys = encode(
                {
                    "galois": to_bytes(keys.create_galois_keys(elements)) if elements else b"",
                    "relin": to_bytes(keys.create_relin_keys()),
                }
            )
        else:
            self._secret = from_bytes(form_of(question.parameters, "secret"), question.parameters, secret)
        self._encryptor = library.Encryptor(context, self._secret)
        self._decryptor = library.Decryptor(context, self._secret)

    @property
    def secret_key(self) -> bytes:
        """The secret key, from which the same client can be made again; keep it in a file that only you can read."""
        return to_bytes(self._secret)

    def __repr__(self) -> str:
        return f"Client({self.question.widths})"

    def encrypt(self, record: Any) -> bytes:
        """Return one record, encrypted."""
        given = np.asarray(record, np.float64).reshape(-1)
        if len(given) != self.question.widths[0]:
            raise InputError(f"a record has {len(given):,} numbers, but the model takes {self.question.widths[0]:,}")
        if not (np.isfinite(given).all() and np.abs(given).max() <= self.question.bound):
            raise InputError(
                f"the numbers of a record must be between {-self.question.bound:g} and {self.question.bound:g}"
            )
        period = self.question.periods[0]
        padded = np.tile(np.pad(given, (0, period - len(given))), self.question.parameters.slots // period)
        plain = seal().Plaintext()
        self._encoder.encode(padded.tolist(), float(2**self.question.parameters.scale_bits), plain)
        return to_bytes(self._encryptor.encrypt_symmetric(plain))

    def decrypt(self, answer: bytes) -> Floats:
        """Return the scores that an answer holds."""
        given = from_bytes(form_of(self.question.parameters, "answer"), self.question.parameters, answer)
        plain = seal().Plaintext()
        try:
            self._decryptor.decrypt(given, plain)
            found = np.asarray(self._encoder.decode_double(plain)[: self.question.widths[-1]])
        except (RuntimeError, ValueError) as error:
            raise ProtocolError("the answer is damaged") from error
        # A ciphertext of another key decrypts to numbers far out of range. A wrong answer within it is not detected.
        if not np.isfinite(found).all() or np.abs(found).max() > 2 * self.question.parameters.range:
            raise ProtocolError("the answer is damaged, or encrypted with another key")
        return found * self.question.factor


@dataclass(frozen=True, eq=False, repr=False)
class Session:
    """The public keys of one client."""

    galois: Any
    relin: Any


class Server:
    """Holds the model: answers encrypted records. Its `question` is what clients must know."""

    def __init__(self, circuit: Circuit) -> None:
        library = seal()
        self.circuit, self.question = circuit, Question.of(circuit)
        context = self.question.parameters.context
        self._encoder, self._evaluator = library.CKKSEncoder(context), library.Evaluator(context)
        self._levels = _levels(context)
        periods = self.question.periods
        self._layers = []
        for place, (weights, bias) in enumerate(zip(circuit.weights, circuit.biases, strict=True)):
            shrink = 1 / self.question.factor if place == len(circuit.weights) - 1 else 1.0
            diagonals = self._diagonals(weights * shrink, periods[place], periods[place + 1], level=2 * place)
            self._layers.append((diagonals, np.asarray(bias) * shrink))

    def __repr__(self) -> str:
        return f"Server({self.question.widths})"

    def connect(self, public_keys: bytes) -> Session:
        """Read the public keys of a client, once; a `ProtocolError` if they are damaged or do not fit."""
        given, parameters, steps = decode(public_keys), self.question.parameters, self.question.steps
        relin = from_bytes(form_of(parameters, "relin"), parameters, given.get("relin"))
        galois = from_bytes(galois_form(parameters, steps), parameters, given.get("galois")) if steps else None
        return Session(galois, relin)

    def answer(self, session: Session, record: bytes) -> bytes:
        """Return the encrypted scores of an encrypted record."""
        parameters = self.question.parameters
        at = from_bytes(form_of(parameters, "record"), parameters, record)
        periods, evaluator = self.question.periods, self._evaluator
        try:
            for place, (diagonals, bias) in enumerate(self._layers):
                if place:
                    evaluator.square_inplace(at)
                    evaluator.relinearize_inplace(at, session.relin)
                    evaluator.rescale_to_next_inplace(at)
                at = self._product(at, diagonals, periods[place], periods[place + 1], session.galois)
                plain = seal().Plaintext()
                wide = np.pad(bias, (0, periods[place + 1] - len(bias)))
                self._encoder.encode(self._repeated(wide), at.parms_id(), at.scale, plain)
                evaluator.add_plain_inplace(at, plain)
        except (RuntimeError, ValueError) as error:
            raise ProtocolError("the record could not be evaluated: its keys are of another client") from error
        return to_bytes(at)

    def _repeated(self, values: Floats) -> list[float]:
        return [float(one) for one in np.tile(values, self.question.parameters.slots // len(values))]

    def _diagonals(self, weights: Floats, before: int, after: int, level: int) -> dict[tuple[int, int], Any]:
        """Return the encoded diagonals of a matrix by giant and baby step, without those that are zero."""
        padded = np.pad(weights, ((0, after - weights.shape[0]), (0, before - weights.shape[1])))
        parms, prime = self._levels[level]
        baby, giant = _split(min(before, after))
        place = np.arange(max(before, after))
        found = {}
        for big in range(giant):
            for small in range(baby):
                values = padded[place % after, (place + big * baby + small) % before]
                if values.any():
                    plain = seal().Plaintext()
                    # At the scale of the prime that is dropped next, so that the scale stays as it is.
                    self._encoder.encode(self._repeated(np.roll(values, big * baby)), parms, float(prime), plain)
                    found[big, small] = plain
        return found

    def _product(self, at: Any, diagonals: dict[tuple[int, int], Any], before: int, after: int, galois: Any) -> Any:
        """Return the product of a matrix with an encrypted vector, which then repeats after the outputs."""
        library, evaluator = seal(), self._evaluator
        baby, giant = _split(min(before, after))
        turned = {0: at}
        for small in {small for _, small in diagonals} - {0}:
            turned[small] = library.Ciphertext()
            evaluator.rotate_vector(at, small, galois, turned[small])
        total = None
        for big in range(giant):
            part = None
            for small in range(baby):
                if (big, small) in diagonals:
                    one = library.Ciphertext()
                    evaluator.multiply_plain(turned[small], diagonals[big, small], one)
                    part = one if part is None else _added(evaluator, part, one)
            if part is not None:
                if big:
                    evaluator.rotate_vector_inplace(part, big * baby, galois)
                total = part if total is None else _added(evaluator, total, part)
        evaluator.rescale_to_next_inplace(total)
        step = after
        while step < before:
            one = library.Ciphertext()
            evaluator.rotate_vector(total, step, galois, one)
            evaluator.add_inplace(total, one)
            step *= 2
        return total


def _most_factor(widths: Sequence[int], classes: Sequence[Any] | None = None) -> int:
    return _MOST_LINEAR if len(widths) == 2 and classes is None else _MOST_FACTOR


def _added(evaluator: Any, total: Any, one: Any) -> Any:
    evaluator.add_inplace(total, one)
    return total


def _levels(context: Any) -> list[tuple[Any, int]]:
    """Return the name of each level of the modulus and the prime that is dropped next."""
    found, data = [], context.first_context_data()
    while data is not None:
        found.append((data.parms_id(), data.parms().coeff_modulus()[-1].value()))
        data = data.next_context_data()
    return found


def _power(number: int) -> int:
    """Return the smallest power of 2 that is at least a number."""
    return 1 << (number - 1).bit_length()


def _split(count: int) -> tuple[int, int]:
    """Return baby and giant steps; both are powers of 2."""
    baby = 1 << math.ceil(math.log2(count) / 2)
    return baby, count // baby


def _steps(before: int, after: int) -> set[int]:
    baby, giant = _split(min(before, after))
    steps = {*range(1, baby), *(big * baby for big in range(1, giant))}
    while after < before:
        steps.add(after)
        after *= 2
    return steps
