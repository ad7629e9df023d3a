# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from quickthaw.handler.errors import ApiKeysError, AuthenticationError
from quickthaw.handler.http import auth
from quickthaw.handler.http.auth import ApiKeys, Guard


def is_let_in(guard: Guard, authorization: str | None) -> bool:
    try:
        guard.check(authorization)
    except AuthenticationError:
        return False
    return True


def test_without_keys_everybody_is_let_in() -> None:
    assert is_let_in(Guard(ApiKeys(), None), None)
    assert is_let_in(Guard(ApiKeys(), None), "Bearer anything")


@pytest.mark.parametrize("authorization", ["Bearer one", "Bearer clé", "bearer one", "BEARER  one "])
def test_each_key_is_let_in(authorization: str) -> None:
    assert is_let_in(Guard(ApiKeys.parse("one,clé"), None), authorization)


@pytest.mark.parametrize(
    "authorization",
    [None, "", "one", "Bearer", "Bearer ", "Basic one", "Bearer on", "Bearer onee", "Bearer \ud800"],
)
def test_nothing_else_is(authorization: str | None) -> None:
    assert not is_let_in(Guard(ApiKeys.parse("one,clé"), None), authorization)


def test_a_file_is_read_anew_with_each_request(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\n\none\n  two  # of the other team\n")
    guard = Guard(ApiKeys.parse("three"), str(path))
    assert all(is_let_in(guard, f"Bearer {key}") for key in ("one", "two", "three"))
    assert not any(is_let_in(guard, f"Bearer {key}") for key in ("#", "ours", "# ours", "of"))
    path.write_text("four")
    assert [is_let_in(guard, f"Bearer {key}") for key in ("one", "three", "four")] == [False, True, True]


def test_a_file_without_keys_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n# none yet\n")
    guard = Guard(ApiKeys(), str(tmp_path / "keys"))
    assert not is_let_in(guard, None)
    assert not is_let_in(guard, "Bearer ")


def test_a_file_that_cannot_be_read_is_refused_at_init_and_lets_nobody_in_later(tmp_path: Path) -> None:
    with pytest.raises(ApiKeysError, match=r"cannot be read: .*/absent: No such file"):
        Guard(ApiKeys(), str(tmp_path / "absent"))
    path = tmp_path / "keys"
    path.touch()
    guard = Guard(ApiKeys(), str(path))
    path.unlink()
    with pytest.raises(ApiKeysError):
        guard.check("Bearer one")


def test_a_match_ends_no_comparison_early(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def is_same(known: bytes, given: bytes) -> bool:
        compared.append(known)
        return known == given

    monkeypatch.setattr(auth, "is_same", is_same)
    Guard(ApiKeys.parse("one,two,three"), None).check("Bearer one")
    assert compared == [b"one", b"two", b"three"]


def test_keys_show_in_no_repr_and_no_message() -> None:
    keys = ApiKeys.parse("secret")
    assert "secret" not in f"{keys} {keys!r}"
    with pytest.raises(AuthenticationError) as error:
        Guard(keys, None).check("Bearer guess")
    assert "guess" not in str(error.value)
    assert "secret" not in str(error.value)
