"""Loads that are described, and logs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.serving.load import cut, load_requests
from armillary.serving.requests import Requests


def test_a_closed_loop_has_the_lengths_of_inferencex() -> None:
    """As its client draws them for 1,024 tokens and 4 clients."""
    found = load_requests("closed:clients=4,requests=40,input=819-1024,output=819-1024")
    assert found.prompt[:6].tolist() == [991, 866, 936, 1011, 886, 1014]
    assert found.output[:6].tolist() == [851, 1012, 828, 1004, 946, 851]
    assert found.clients == 4 and found.arrival.tolist() == [0] * 4 + [-1] * 36


@pytest.mark.parametrize(("kind", "cv"), [("poisson", 1.0), ("gamma", 2.0), ("constant", 0.0)])
def test_open_loops_have_their_rate(kind: str, cv: float) -> None:
    more = ",cv=2" if kind == "gamma" else ""
    found = load_requests(f"{kind}:rate=4{more},requests=20000,input=10,output=2")
    gaps = np.diff(found.arrival) / 1e9
    assert found.arrival[0] == 0 and gaps.mean() == pytest.approx(0.25, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.1)


def test_seeds_differ_and_repeat() -> None:
    text = "poisson:rate=4,requests=9,input=1-100,output=1-100"
    one, same, other = load_requests(text, 1), load_requests(text, 1), load_requests(text, 2)
    assert one.arrival.tolist() == same.arrival.tolist() and one.prompt.tolist() == same.prompt.tolist()
    assert one.arrival.tolist() != other.arrival.tolist() and one.prompt.tolist() != other.prompt.tolist()


def test_a_prefix_is_shared() -> None:
    found = load_requests("constant:rate=1,requests=2,input=50,output=1,prefix=40")
    assert found.shared == ((0,), (0,)) and found.shared_block == 40


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("poison:rate=1,input=1,output=1", "no kind 'poison' (did you mean 'poisson'?)"),
        ("poisson:rat=1,input=1,output=1", "no key 'rat' (did you mean 'rate'?)"),
        ("poisson:rate=0,input=1,output=1", "rate: got '0', expected a number above 0"),
        ("poisson:rate=nan,input=1,output=1", "rate: got 'nan', expected a number above 0"),
        ("poisson:rate=1,input=1", "missing key 'output'"),
        ("poisson:rate=1,input=9-1,output=1", "input: got '9-1', expected tokens from 1"),
        ("poisson:rate=1,input=0,output=1", "input: got '0', expected tokens from 1"),
        ("poisson:rate=1,input=1,output=1,requests=-1", "requests: got '-1', expected a whole number from 1"),
        ("poisson:rate=1,input=1,output=1,input=2", "input is given twice"),
        ("poisson:rate=1,input=1,output=1,requests=3000000", "requests: 3 M of them, expected at most 2 M"),
        ("poisson:rate=1e-9,input=1,output=1", "expected at most 1e+08 s"),
        (
            "closed:clients=9,requests=8,input=1,output=1",
            "clients: got '9', expected a whole number from 1 to 8",
        ),
        (
            "constant:rate=1,input=5,output=1,prefix=6",
            "prefix: got '6', expected at most 5, the shortest input",
        ),
        ("nothing", "load nothing: there is no such file"),
        (
            "sessions:rate=1,input=1,output=1,think=1s",
            "missing key 'turns', expected one of rate, sessions, turns",
        ),
        (
            "sessions:rate=1,turns=2,input=1,output=1,think=1",
            "think: got '1', expected a time, or a range of times",
        ),
        ("sessions:rate=1,turns=2,input=1,output=1,think=5s-2s", "think: got '5s-2s', expected a time"),
        (
            "sessions:rate=1,turns=9,input=9000000,output=1,think=0s",
            "expected sessions of at most 10,000,000 tokens",
        ),
        ("sessions:rate=1,turns=2000000,sessions=9,input=1,output=1,think=0s", "expected at most 2 M"),
        (
            "sessions:rate=1,turns=2,input=4,output=1,think=0s,prefix=5",
            "expected at most 4, the shortest input",
        ),
        ("sessions:rate=1,turns=2,input=4,output=1,think=1000h,requests=3", "no key 'requests'"),
    ],
)
def test_a_wrong_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        load_requests(text)
    assert words in str(error.value)


def test_sessions_are_drawn() -> None:
    text = "sessions:rate=2,sessions=2000,turns=1-5,input=10-30,output=5-9,think=1s-3s,prefix=8"
    found = load_requests(text, 3)
    follows = found.follows
    assert follows is not None and found.shared_block == 8
    heads = found.arrival >= 0
    assert heads.sum() == 2000 == follows.sessions.max() + 1 and (follows.counts == ~heads).all()
    assert np.diff(found.arrival[heads]).mean() == pytest.approx(5e8, rel=0.05)
    assert np.bincount(follows.sessions).mean() == pytest.approx(3, rel=0.05)
    assert (follows.delay[heads] == 0).all() and (follows.reused[heads] == 0).all()
    assert follows.delay[~heads].min() >= 10**9 and follows.delay.max() <= 3 * 10**9
    for r in np.flatnonzero(~heads):
        (former,) = follows.of(r)
        # It begins with all that was said, and adds its own.
        assert follows.reused[r] == found.prompt[former] + found.output[former]
        assert 10 <= found.prompt[r] - follows.reused[r] <= 30
    first = cut(found, 100, 2.0)
    assert first.follows and first.arrival.tolist() == [
        round(each / 2) if each >= 0 else -1 for each in found.arrival[:100].tolist()
    ]
    assert first.follows.former.tolist() == follows.former[: follows.begin[100]].tolist()


SESSIONS = (
    '{"id": 1, "arrival_s": 5, "input_tokens": 9, "output_tokens": 3}\n'
    '{"id": "b", "after": 1, "delay_s": 2, "input_tokens": 12, "output_tokens": 4, "reused_tokens": 12}\n'
    '{"id": "c", "arrival_s": 4, "input_tokens": 5, "output_tokens": 1}\n'
    '{"after": ["c", "b", "c"], "input_tokens": 7, "output_tokens": 1, "reused_tokens": 6}\n'
)


def test_a_log_says_who_follows(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(SESSIONS)
    found = load_requests(path)
    follows = found.follows
    assert follows is not None and found.arrival.tolist() == [0, 10**9, -1, -1]
    assert found.prompt.tolist() == [5, 9, 12, 7]
    assert [follows.of(r).tolist() for r in range(4)] == [[], [], [1], [0, 2]]
    assert follows.delay.tolist() == [0, 0, 2 * 10**9, 0] and follows.reused.tolist() == [0, 0, 12, 6]
    assert follows.sessions.tolist() == [0] * 4


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('"after": "z"', ":2: after: got 'z', expected the id of an earlier line"),
        ('"after": "x1"', "expected the id of an earlier line (did you mean 'x'?)"),
        ('"after": []', "after: got [], expected the id of an earlier line, or several"),
        ('"after": [["x"]]', "after: got ['x'], expected the id"),
        ('"after": "x", "arrival_s": 3', "arrival_s: got 3, expected none with after"),
        ('"after": "x", "delay_s": -1', "delay_s: got -1, expected s from 0"),
        ('"after": "x", "delay_s": 2e8', "expected at most 1e+08 s"),
        ('"after": "x", "reused_tokens": 4', "reused_tokens: got 4, expected tokens from 0 to 3"),
        ('"after": "x", "reused_tokens": true', "reused_tokens: got True, expected tokens from 0 to 3"),
        ('"after": "x", "reused_tokens": 2, "hash_ids": [1]', "hash_ids: expected none with reused_tokens"),
        ('"arrival_s": 3, "delay_s": 1', "delay_s: got 1, expected it with after only"),
        ('"arrival_s": 3, "id": "x"', "id: got 'x', expected a name that no earlier line has"),
        ('"arrival_s": 3, "id": 1.5', "id: got 1.5, expected text or a whole number"),
        ('"id": "y"', "arrival_s: got nothing, expected s from 0"),
    ],
)
def test_who_cannot_follow(keys: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    line = '{"id": "x", "arrival_s": 1, "input_tokens": 2, "output_tokens": 1}\n'
    path.write_text(line + f'{{"input_tokens": 5, "output_tokens": 1, {keys}}}')
    with pytest.raises(InputError) as error:
        load_requests(path)
    assert (words in str(error.value) and f"{path}:2" in str(error.value)) or "from the first request" in str(
        error.value
    )


def test_keys_of_a_log_without_an_effect_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"arrival_s": 1, "input_tokens": 2, "output_tokens": 1, "aftr": "x", "user": 3}')
    assert load_requests(path).notes == (
        "of log.jsonl these keys have no effect: 'aftr' (did you mean 'after'?), 'user'",
    )
    path.write_text('{"timestamp": 1, "input_length": 2, "output_length": 1, "user": 3, "reused_tokens": 4}')
    (note,) = load_requests(path).notes
    assert note.startswith("of log.jsonl these keys have no effect, as only a log of Armillary's format")
    assert note.endswith(": 'reused_tokens'")


LOGS = {
    "ours.jsonl": '{"arrival_s": 2.5, "input_tokens": 7, "output_tokens": 3}\n'
    '{"arrival_s": 2, "input_tokens": 5, "output_tokens": 1}\n',
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [3]}\n\n'
    '{"timestamp": 500, "input_length": 7, "output_length": 3, "hash_ids": []}\n',
    "vllm.jsonl": '{"request_id": "a", "input_toks": 5, "output_toks": 1, "arrival_time": 1787267980.25}\n'
    '{"request_id": "b", "input_toks": 7, "output_toks": 3, "arrival_time": 1787267980.75}\n',
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,5,1\n"
    "2023-11-16 18:17:04.4799600,7,3\n",
    "azure2.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.009930+00:00,5,1\r\n"
    "2024-05-10 00:00:00.509930+00:00,7,3\r\n",
    "burst.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,5,1,6,Conversation log\n5.5,GPT-4,7,3,10,API log\n6,GPT-4,7,0,7,API log\n",
}


@pytest.mark.parametrize("name", LOGS)
def test_logs_are_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(LOGS[name])
    found = load_requests(path)
    assert found.arrival.tolist() == [0, 500_000_000]
    assert found.prompt.tolist() == [5, 7] and found.output.tolist() == [1, 3]
    assert found.shared == (((3,), ()) if name.startswith("moon") else None)
    assert len(found.notes) == (name == "burst.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no request"),
        ("a,b\n1,2\n", "expected the keys of a log"),
        ("{}\n", "expected the keys of a log"),
        ("{\n", "is not JSON"),
        ('{"arrival_s": 1, "input_tokens": 1, "output_tokens": 1}\n[]\n', ":2: got []"),
        ('{"arrival_s": 1, "input_tokens": 1, "output_token": 1}', "no 'output_tokens' (did you mean 'output_token'?)"),
        ('{"arrival_s": -1, "input_tokens": 1, "output_tokens": 1}', "arrival_s: got -1, expected s from 0"),
        ('{"arrival_s": true, "input_tokens": 1, "output_tokens": 1}', "arrival_s: got True"),
        ('{"arrival_s": 1, "arrival_s": 2, "input_tokens": 1, "output_tokens": 1}', "'arrival_s' is given twice"),
        ("TIMESTAMP,TIMESTAMP,ContextTokens,GeneratedTokens\n", "'TIMESTAMP' is given twice"),
        ('{"arrival_s": 1e30, "input_tokens": 1, "output_tokens": 1}', "got 1e+30, expected s from 0, up to 3.2e+09"),
        ('{"arrival_s": 1e300, "input_tokens": 1, "output_tokens": 1}', "arrival_s: got 1e+300"),
        ('{"arrival_s": 1, "input_tokens": 0, "output_tokens": 1}', "input_tokens: got 0, expected tokens from 1"),
        ('{"arrival_s": 1, "input_tokens": 1e99, "output_tokens": 1}', "input_tokens: got 1e+99"),
        ('{"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": [1, 2]}', "hash_ids: got 2"),
        ('{"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": ["a"]}', "hash_ids: got ['a']"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "TIMESTAMP: got 'yesterday'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:17:03,1,1\n", "TIMESTAMP: got '2023-13-16"),
    ],
)  # fmt: skip
def test_a_wrong_log_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_requests(path)
    assert words in str(error.value) and str(path) in str(error.value)


def test_a_log_cut_and_faster(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [{"arrival_s": each, "input_tokens": each + 1, "output_tokens": 1} for each in range(5)]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = cut(load_requests(path), 3, 2.0)
    assert found.arrival.tolist() == [0, 5 * 10**8, 10**9] and found.prompt.tolist() == [1, 2, 3]
    alone = load_requests("sessions:rate=1,sessions=1,turns=3,input=8,output=2,think=1s")
    assert any(note.startswith("speed 2 has no effect") for note in cut(alone, speed=2.0).notes)
    with pytest.raises(InputError, match="speed: got 0"):
        cut(found, None, 0)
    with pytest.raises(InputError, match="clients of a closed loop"):
        cut(Requests(np.zeros(1, np.int64), np.ones(1, np.int64), np.ones(1, np.int64), 1), None, 2)


def test_a_text_longer_than_a_name_is_no_file() -> None:
    with pytest.raises(InputError, match="there is no such file"):
        load_requests("a" * 400)
    with pytest.raises(InputError, match="no kind"):
        load_requests("poison:rate=" + "1" * 400)
