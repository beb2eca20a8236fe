"""Programs in which conditions, inputs and pollers decide what runs: sensors, typed inputs, short circuit."""

import pytest

import tickwork as tw


@pytest.fixture
def sensors(program, world, tmp_path):
    module = program("sensors")
    world.replace("shell", {"exit_code": 0, "output": ""})
    return module, str(tmp_path / "in")


def test_the_load_waits_for_its_time_its_file_and_its_command(world, sensors, tmp_path):
    module, folder = sensors
    run = world.run(module.guarded, folder=folder, opens_at="2026-01-01T00:30:00Z")
    world.advance(minutes=29)
    assert "load" not in {name for name, task in run.tasks.items() if task.state == "succeeded"}

    (tmp_path / "in").mkdir()
    world.advance(minutes=2)
    assert run.tasks["load"].state == "succeeded"

    world.advance(minutes=15)
    run.assert_completed(output=f"loaded {folder}, nothing came late")
    assert run.tasks["add_late_rows"].state == "not_taken"


def test_what_comes_late_but_in_time_is_added(world, sensors, tmp_path):
    module, folder = sensors
    (tmp_path / "in").mkdir()
    run = world.run(module.guarded, folder=folder, opens_at="2026-01-01T00:00:01Z")
    world.advance(minutes=5)
    run.assert_waiting()

    (tmp_path / "in" / "late").touch()
    world.advance(minutes=2)

    run.assert_completed(output=f"loaded {folder} and what came late")


def test_the_file_is_not_waited_for_longer_than_two_hours(world, sensors):
    module, folder = sensors
    run = world.run(module.guarded, folder=folder, opens_at="2026-01-01T00:00:01Z")
    world.advance(hours=3)

    run.assert_failed(node="exists")
    assert run.tasks["load"].state == "blocked"


@pytest.mark.parametrize(("errors", "state"), [(3, "completed"), (4, "failed")])
def test_three_errors_in_a_row_of_the_command_are_tolerated(world, sensors, tmp_path, errors, state):
    module, folder = sensors
    (tmp_path / "in").mkdir()
    world.fail("shell", times=errors, error=TimeoutError("slow"))
    run = world.run(module.guarded, folder=folder, opens_at="2026-01-01T00:00:01Z")
    world.advance(hours=3)

    assert run.state == state, run.why()


@pytest.mark.parametrize(
    ("inputs", "greetings"),
    [
        ({}, ["Hello, Ada!", "Hello, Eve!"]),
        ({"english": False, "german": True, "french": True, "tone": "formal"},
         ["Guten Tag, Ada.", "Guten Tag, Eve.", "Bonjour, Ada.", "Bonjour, Eve."]),
        ({"english": False}, []),
    ],
)  # fmt: skip
def test_typed_inputs_choose_the_branches(world, program, inputs, greetings):
    run = world.run(program("typed_inputs").greet_all, names=["Ada", "Eve"], **inputs)

    run.assert_completed(output=greetings)


@pytest.mark.parametrize(("name", "value"), [("tone", "rude"), ("german", "yes"), ("names", [1])])
def test_an_input_of_another_type_is_refused_before_the_run(world, program, name, value):
    with pytest.raises(tw.Refused, match=name):
        world.run(program("typed_inputs").greet_all, **{name: value})

    assert world.runs() == []


def test_a_false_condition_skips_what_follows(world, program):
    short_circuit = program("short_circuit")

    world.run(short_circuit.daily, rows=3).assert_completed(output="loaded 3, published")
    skipped = world.run(short_circuit.daily, rows=0).assert_completed(output="nothing to do")

    assert skipped.tasks["load"].state == skipped.tasks["publish"].state == "not_taken"


@pytest.fixture
def editors(program, world):
    run = world.run(program("editors").publish, topic="ticks")
    run.assert_waiting("draft")
    world.fill(run, "draft", title="Ticks", urgent=True, by="ada")
    return run


def test_what_people_choose_decides_where_it_goes(world, editors):
    assert editors.tasks["channel"].message == "Where does Ticks go?"
    world.fill(editors, "channel", where="mail")
    assert editors.tasks["check"].message == "Ticks, 300 words, goes to the mail"
    world.fill(editors, "check", approve=True, by="eve")

    editors.assert_completed(output="Ticks was mailed at once")


def test_without_answers_the_defaults_decide(world, editors):
    world.advance(hours=2)
    assert editors.tasks["channel"].result == {"where": "blog", "by": "", "comment": ""}
    world.advance(days=1)

    editors.assert_completed(output="Ticks is kept back: no reason (nobody answered)")


def test_an_approver_may_say_no_with_a_reason(world, editors):
    world.fill(editors, "channel", where="blog")
    world.fill(editors, "check", approve=False, reason="too short", by="bob")

    editors.assert_completed(output="Ticks is kept back: too short (bob)")


@pytest.mark.parametrize(
    ("values", "by", "code"),
    [
        ({"where": "radio"}, "eve", "wrong_value"),
        ({"wher": "blog"}, "eve", "unknown_field"),
        ({}, "eve", "missing_field"),
    ],
)
def test_an_answer_is_checked_when_it_is_given(world, editors, values, by, code):
    with pytest.raises(tw.Refused) as refused:
        world.fill(editors, "channel", by=by, **values)

    assert refused.value.code == code
    editors.assert_waiting("channel")


def test_only_an_approver_fills_in_the_check(world, editors):
    world.fill(editors, "channel", where="blog")

    with pytest.raises(tw.Refused, match="not among the approvers"):
        world.fill(editors, "check", approve=True, by="ada")
