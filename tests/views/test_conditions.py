"""Conditions as people type them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fastshard as fs
from fastshard.conditions import parse_where

UTC = datetime.timezone.utc
TABLE = pa.table(
    {
        "id": [1, 2, 3, 4],
        "a": pa.array([1, 2, 3, None], pa.int8()),
        "x": [0.5, -1.5, None, 2.0],
        "s": ["x", "yy", None, "it's"],
        "d": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2), datetime.date(2024, 1, 3), None],
        "ts": pa.array(
            [datetime.datetime(2024, 1, i, tzinfo=UTC) for i in (1, 2, 3, 4)], pa.timestamp("us", "UTC")
        ),
        "p": [{"q": 1}, {"q": 2}, None, {"q": 4}],
        "p.q": [9, 8, 7, 6],
        "odd name": [1.5, 2.5, -1.0, 0.0],
        "money": pa.array([Decimal("1.50"), Decimal("2.00"), None, Decimal("-1.00")]),
        "b": [True, False, None, True],
        "date": [10, 20, 30, 40],
        "und": [1, 0, 1, 0],
    }
)

RIGHT: list[tuple[str, list[int]]] = [
    ("a > 1", [2, 3]),
    ("a>=2", [2, 3]),
    ("a<2", [1]),
    ("a <= 2", [1, 2]),
    ("a = 2", [2]),
    ("a == 2", [2]),
    ("a != 2", [1, 3]),
    ("a <> 2", [1, 3]),
    ("2 < a", [3]),
    ("1 < a <= 3", [2, 3]),
    ("1 <= a < a + 1 < 4", [1, 2]),
    ("a = 1000", []),
    ("a = 1.0", [1]),
    ("a = -1", []),
    ("x = -1.5", [2]),
    ("x = -15e-1", [2]),
    ("x < .6", [1, 2]),
    ("a = 1 or a = 3", [1, 3]),
    ("a = 1 and s = 'x'", [1]),
    ("not a = 1", [2, 3]),
    ("NOT a = 1 AND b", []),
    ("a = 1 or a = 2 and b", [1]),
    ("(a = 1 or a = 2) and not b", [2]),
    ("not (a = 1 or a = 2)", [3]),
    ("a is null", [4]),
    ("a is not null", [1, 2, 3]),
    ("a IS NULL or s is None", [3, 4]),
    ("not a is null", [1, 2, 3]),
    ("a in (1, 3)", [1, 3]),
    ("a in [1, 3,]", [1, 3]),
    ("a not in (1)", [2, 3]),
    ("not a in (1)", [2, 3]),
    ("a in ()", []),
    ("s in ('x', \"yy\")", [1, 2]),
    ("s not in ('x')", [2, 4]),
    ("d in ('2024-01-02')", [2]),
    ("x in (0.5, 2)", [1, 4]),
    ("s = 'it''s'", [4]),
    ('s = "it\'s"', [4]),
    (r"s = 'it\'s'", [4]),
    ("s > 'x'", [2]),
    ("s like 'y%'", [2]),
    ("s like '_'", [1]),
    ("s not like '%y'", [1, 4]),
    ("a between 2 and 3", [2, 3]),
    ("a not between 2 and 3", [1]),
    ("a between 2 and 3 and s = 'yy'", [2]),
    ("d >= '2024-01-02'", [2, 3]),
    ("d = date '2024-01-02'", [2]),
    ("ts > '2024-01-02'", [3, 4]),
    ("ts = timestamp '2024-01-02 00:00:00'", [2]),
    ("ts < date '2024-01-02'", [1]),
    ("'2024-01-02' < d", [3]),
    ("p.q > 1", []),
    ("`p.q` > 7", [1, 2]),
    ("`odd name` < 0", [3]),
    ("b", [1, 4]),
    ("not b", [2]),
    ("b = true", [1, 4]),
    ("b = false", [2]),
    ("b != true", [2]),
    ("b is null", [3]),
    ("true", [1, 2, 3, 4]),
    ("false", []),
    ("money = 1.5", [1]),
    ("money = '1.50'", [1]),
    ("money > 1.99", [2]),
    ("money in (2, -1)", [2, 4]),
    ("money < 0", [4]),
    ("date = 10", [1]),
    ("und = 1", [1, 3]),
    ("a + 1 = 3", [2]),
    ("a * 2 - 1 >= 5", [3]),
    ("a / 2 = 1", [2, 3]),
    ("-a = -2", [2]),
    ("a - -1 = 2", [1]),
    ("x + a > 1", [1]),
    ("a = a", [1, 2, 3]),
    ("  a=1  ", [1]),
    ("a = 1_0 - 9", [1]),
]


@pytest.mark.parametrize(("text", "ids"), RIGHT, ids=[text for text, _ in RIGHT])
def test_conditions(text: str, ids: list[int]) -> None:
    schema = TABLE.schema if text != "p.q > 1" else TABLE.drop_columns(["p.q"]).schema
    wanted = ids if text != "p.q > 1" else [2, 4]
    assert TABLE.select(schema.names).filter(parse_where(text, schema))["id"].to_pylist() == wanted


WRONG: list[tuple[str, str]] = [
    ("", "the condition is empty"),
    ("   ", "the condition is empty"),
    ("a", "character 1: expected a condition, found a value of type int8"),
    ("5", "expected a condition, found 5"),
    ("a >", "character 4: expected a column or a value, found the end"),
    ("a > > 1", "character 5: expected a column or a value, found '>'"),
    ("a = null", 'character 5: nothing equals null; write "is null"'),
    ("a is 5", 'character 6: expected "null" or "none", found \'5\''),
    ("a & b", "character 3: '&' means nothing here; write \"and\""),
    ("a = 1 || b", 'means nothing here; write "or"'),
    ("a ; b", "';' means nothing here"),
    ("s = 'x", "character 5: the ' is never closed"),
    ("`odd = 1", "the ` is never closed"),
    ("a = 1 b", 'character 7: expected "and", "or" or the end, found \'b\''),
    ("(a = 1", 'expected ")", found the end'),
    ("a = 1)", "found ')'"),
    ("a not 5", 'expected "in", "between" or "like" after "not"'),
    ("a in 5", 'expected "[" or "("'),
    ("a in (1 2)", "expected \",\", found '2'"),
    ("a in (b)", "holds constants only"),
    ("a in (null)", "null is in no list"),
    ("a in (300)", "300 is no int8"),
    ("a in (1.5)", "1.5 is no int8"),
    ("a in ('x')", "'x' is no int8"),
    ("1 in (1)", 'only a column can stand before "in"'),
    ("1 is null", "only a column can be null"),
    ("'a' like 'a'", 'only a column can stand before "like"'),
    ("s like 5", "expected a pattern in quotes"),
    ("a like 'x%'", "no kernel"),
    ("1 = 1", "two constants are compared"),
    ("a > 'x'", "'x' is no int8"),
    ("d > 'soon'", "'soon' is no date32"),
    ("d > 5", "no kernel"),
    ("s > 5", "no kernel"),
    ("idd = 1", "there is no column 'idd'; did you mean 'id'?"),
    ("ID = 1", "there is no column 'ID'; did you mean 'id'?"),
    ("nonsense = 1", "there is no column 'nonsense'; the columns are"),
    ("p.z = 1", "z"),
    ("a and b", "found a value of type int8"),
    ("not a", "found a value of type int8"),
    ("-'x' = a", 'expected a number or a column after "-"'),
    ("-", "expected a column or a value"),
    ("s + 1 = 2", "no kernel"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_wrong_conditions_are_explained(text: str, message: str) -> None:
    schema = TABLE.drop_columns(["p.q"]).schema
    with pytest.raises(fs.errors.InvalidError) as caught:
        parse_where(text, schema)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_condition_is_shown_around_the_fault() -> None:
    text = " and ".join(["a > 1"] * 50) + " and zzz = 1 and " + " and ".join(["a > 1"] * 50)
    with pytest.raises(fs.errors.InvalidError, match=r"\.\.\..*zzz = 1.*\.\.\..*no column 'zzz'") as caught:
        parse_where(text, TABLE.schema)
    assert len(str(caught.value)) < 400


def test_a_column_named_as_a_word_is_a_column() -> None:
    table = pa.table({"in": [1, 2], "null": [3, 4], "and": [5, 6]})
    assert table.filter(parse_where("`in` = 1", table.schema)).num_rows == 1
    assert table.filter(parse_where("`null` > 3 and `and` = 6", table.schema)).num_rows == 1


def test_a_deep_condition_is_read_or_refused() -> None:
    deep = "(" * 50 + "a = 1" + ")" * 50
    assert TABLE.filter(parse_where(deep, TABLE.schema))["id"].to_pylist() == [1]
    with pytest.raises(fs.errors.InvalidError, match="nested too deeply"):
        parse_where("(" * 5000 + "a = 1" + ")" * 5000, TABLE.schema)


def test_in_convert(tmp_path: Path) -> None:
    condition: Any = parse_where("a >= 2 and s is not null", TABLE.schema)
    assert fs.convert(TABLE, tmp_path / "out", filter=condition).rows == 1
