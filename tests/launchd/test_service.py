"""The job in launchd, with launchctl scripted call by call."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from warmd.launchd.hold import HELD
from warmd.launchd.launchctl import Answer, JobState, LaunchctlError, parse_print
from warmd.launchd.service import NotLoadedError, Service, WillNotLoadError, WillNotUnloadError

FILE = Path("/Users/me/Library/LaunchAgents/dev.warmd.plist")
GUI, USER = "gui/501/dev.warmd", "user/501/dev.warmd"
OK, GONE, BUSY = (
    Answer(0),
    Answer(113, "Could not find service"),
    Answer(5, "Bootstrap failed: 5: Input/output error"),
)

RUNNING = """\
gui/501/dev.warmd = {
	active count = 1
	path = /Users/me/Library/LaunchAgents/dev.warmd.plist
	type = LaunchAgent
	state = running

	program = /Users/me/venv/bin/python
	environment = {
		pid = 7
		XPC_SERVICE_NAME => dev.warmd
	}

	domain = gui/501 [100005]
	minimum runtime = 30
	exit timeout = 30
	runs = 3
	pid = 4242
	last exit code = 3
}
"""


class Script:
    """A launchctl that gives one answer after the other to each call, and the last one from then on."""

    def __init__(self) -> None:
        self._answers: dict[str, list[Answer]] = {}
        self.calls: list[str] = []

    def on(self, call: str, *answers: Answer) -> Script:
        """What a call is answered."""
        self._answers[call] = list(answers)
        return self

    def run(self, *arguments: str) -> Answer:
        """Answer."""
        call = " ".join(arguments)
        self.calls.append(call)
        listed = self._answers.get(call)
        if listed is None:
            return GONE if arguments[0] == "print" else OK
        return listed.pop(0) if len(listed) > 1 else listed[0]

    def count(self, call: str) -> int:
        """How often it was called so."""
        return self.calls.count(call)


class Signalled(Script):
    """Has this process get a signal at each call that begins so."""

    def __init__(self, call: str, number: int) -> None:
        super().__init__()
        self._call, self._number = call, number

    def run(self, *arguments: str) -> Answer:
        answer = super().run(*arguments)
        if self.calls[-1].startswith(self._call):
            signal.raise_signal(self._number)
        return answer


@contextmanager
def ending_tests(number: int) -> Iterator[None]:
    """Within the block a signal is an exception, and not the end of the tests."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def service(script: Script, time: Time | None = None) -> Service:
    time = time or Time()
    return Service(501, script, sleep=time.sleep, clock=time.clock)


BOOTSTRAP_GUI, BOOTSTRAP_USER = f"bootstrap gui/501 {FILE}", f"bootstrap user/501 {FILE}"


def load(script: Script) -> tuple[str, list[bool]]:
    written: list[bool] = []
    return service(script).load(FILE, written.append), written


def test_a_job_is_enabled_and_loaded_into_the_graphical_session() -> None:
    script = Script()
    assert load(script) == ("gui/501", [False])
    assert script.calls == [f"enable {GUI}", BOOTSTRAP_GUI]


def test_error_five_is_tried_again() -> None:
    script = Script().on(BOOTSTRAP_GUI, BUSY, BUSY, OK)
    assert load(script) == ("gui/501", [False])
    assert script.count(BOOTSTRAP_GUI) == 3


def test_error_five_is_not_tried_for_ever() -> None:
    script = Script().on(BOOTSTRAP_GUI, BUSY).on("print gui/501", OK)
    with pytest.raises(WillNotLoadError) as caught:
        load(script)
    assert script.count(BOOTSTRAP_GUI) == 10
    assert str(caught.value) == (
        "launchctl bootstrap gui/501: Bootstrap failed: 5: Input/output error (error 5); "
        "`warmd doctor` looks for the cause"
    )


def test_without_a_graphical_session_the_users_own_domain_takes_it() -> None:
    script = Script().on(BOOTSTRAP_GUI, Answer(125, "Domain does not support specified action"))
    assert load(script) == ("user/501", [False, True])
    assert script.count(BOOTSTRAP_GUI) == 1


def test_error_five_where_there_is_no_graphical_session_means_the_same() -> None:
    script = Script().on(BOOTSTRAP_GUI, BUSY)
    assert load(script) == ("user/501", [False, True])


def test_a_job_that_no_domain_takes_is_one_line() -> None:
    script = Script().on(BOOTSTRAP_GUI, Answer(125)).on(BOOTSTRAP_USER, Answer(134, ""))
    with pytest.raises(
        WillNotLoadError, match=r"^launchctl bootstrap user/501: exit code 134 \(error 134\); "
    ):
        load(script)


def test_unloading_waits_until_the_job_is_gone() -> None:
    script = Script().on(f"print {GUI}", OK, OK, OK, GONE).on(f"bootout {GUI}", Answer(36, "in progress"))
    time = Time()
    assert service(script, time).unload()
    assert script.count(f"bootout {GUI}") == 1
    # Three looks and two more, half a second apart.
    assert time.now == 2.5


def test_one_look_that_fails_is_not_the_end_of_a_job() -> None:
    script = Script().on(f"print {GUI}", GONE, OK, GONE, OK, GONE, GONE, OK, GONE)
    time = Time()
    assert service(script, time).unload()
    assert (script.count(f"bootout {GUI}"), time.now) == (1, 4.5)
    assert service(Script().on(f"print {GUI}", GONE, OK)).find(2) == ("gui/501", JobState())


class Silent(Script):
    """Gives no answer to the first so many looks after some call."""

    def __init__(self, call: str, looks: int) -> None:
        super().__init__()
        self._call, self._looks = call, looks

    def run(self, *arguments: str) -> Answer:
        answer = super().run(*arguments)
        if arguments[0] == "print" and self._call in self.calls and self._looks:
            self._looks -= 1
            raise LaunchctlError("print", "no answer within 60 s")
        return answer


def test_a_job_is_not_gone_because_launchctl_gives_no_answer() -> None:
    script = Silent(f"bootout {GUI}", 4)
    script.on(f"print {GUI}", OK, GONE)
    time = Time()
    assert service(script, time).unload()
    assert time.now == 3.5
    with pytest.raises(LaunchctlError):
        service(Silent(f"print {GUI}", 1)).unload()


def test_what_was_told_to_end_is_started_whatever_launchctl_does_not_say() -> None:
    running = Answer(0, "\tpid = 7\n\truns = 2\n")
    for script in (Silent(f"kill SIGTERM {GUI}", 1), Script()):
        script.on(f"print {GUI}", running, GONE, running, Answer(0, "\truns = 2\n"))
        assert service(script).restart() == ("gui/501", JobState(pid=7, runs=2))
        assert script.calls[-1] == f"kickstart -k {GUI}"


@pytest.mark.parametrize("number", HELD)
def test_a_signal_during_a_restart_counts_when_the_process_is_started(number: int) -> None:
    script = Signalled(f"kill SIGTERM {GUI}", number)
    script.on(f"print {GUI}", Answer(0, "\tpid = 7\n"), OK)
    with ending_tests(number), pytest.raises(KeyboardInterrupt):
        service(script).restart()
    assert script.calls[-1] == f"kickstart -k {GUI}"


def test_a_job_in_both_domains_is_taken_out_of_both() -> None:
    script = Script().on(f"print {GUI}", OK, GONE).on(f"print {USER}", OK, GONE)
    assert service(script).unload()
    assert [call for call in script.calls if call.startswith("bootout")] == [
        f"bootout {GUI}",
        f"bootout {USER}",
    ]


def test_what_is_not_loaded_is_not_booted_out() -> None:
    script = Script()
    assert not service(script).unload()
    assert [call for call in script.calls if call.startswith("bootout")] == []


def test_a_job_that_stays_is_one_line() -> None:
    script = (
        Script().on(f"print {GUI}", OK).on(f"bootout {GUI}", Answer(36, "Boot-out failed: 36: in progress\n"))
    )
    time = Time()
    with pytest.raises(WillNotUnloadError) as caught:
        service(script, time).unload()
    expected = f"launchctl bootout {GUI}: still loaded after 40 s (Boot-out failed: 36: in progress)"
    assert (str(caught.value), time.now) == (expected, 40.0)


def test_a_restart_goes_to_where_the_job_is() -> None:
    script = Script().on(f"print {USER}", OK)
    assert service(script).restart() == ("user/501", JobState())
    assert script.calls[-1] == f"kickstart -k {USER}"


def test_before_a_restart_the_process_may_end_by_itself() -> None:
    running, stopped = Answer(0, "\tpid = 7\n\truns = 2\n"), Answer(0, "\truns = 2\n\tlast exit code = 0\n")
    script = Script().on(f"print {GUI}", running, running, running, stopped)
    time = Time()
    assert service(script, time).restart() == ("gui/501", JobState(pid=7, runs=2))
    assert [call for call in script.calls if not call.startswith("print")] == [
        f"kill SIGTERM {GUI}",
        f"kickstart -k {GUI}",
    ]
    assert time.now == 1.0


def test_a_process_that_does_not_end_is_killed() -> None:
    script = Script().on(f"print {GUI}", Answer(0, "\tpid = 7\n\truns = 2\n"))
    time = Time()
    service(script, time).restart()
    assert (script.calls[-1], time.now) == (f"kickstart -k {GUI}", 10.0)


def test_what_is_not_loaded_cannot_be_restarted() -> None:
    with pytest.raises(NotLoadedError):
        service(Script()).restart()


def test_a_restart_that_launchd_refuses_is_one_line() -> None:
    script = Script().on(f"print {GUI}", OK).on(f"kickstart -k {GUI}", Answer(1, "Operation not permitted"))
    with pytest.raises(LaunchctlError) as caught:
        service(script).restart()
    assert str(caught.value) == (
        f"launchctl kickstart {GUI}: Operation not permitted (error 1); the service may be stopped now: "
        "`warmd restart` tries again"
    )


def test_what_launchctl_says_is_one_line_that_a_terminal_shows() -> None:
    assert Answer(5, "\n \x1b[31mno\x07\nmore").reason == "[31mno"
    assert Answer(5, " \n").reason == "exit code 5"


def test_how_a_job_is_comes_from_its_own_lines() -> None:
    assert parse_print(RUNNING) == JobState(
        pid=4242,
        runs=3,
        last_exit=3,
        environment={"XPC_SERVICE_NAME": "dev.warmd"},
        settings={"ThrottleInterval": "30", "ExitTimeOut": "30"},
    )


@pytest.mark.parametrize(
    ("lines", "expected", "has_ended"),
    [
        ("\truns = 0\n\tlast exit code = (never exited)\n", JobState(), False),
        ("\truns = 2\n\tlast exit code = 78: EX_CONFIG\n", JobState(runs=2, last_exit=78), True),
        ("\truns = 1\n\tlast exit code = 0\n", JobState(runs=1, last_exit=0), True),
        (
            "\truns = 1\n\tlast terminating signal = Killed: 9\n",
            JobState(runs=1, last_signal="Killed: 9"),
            True,
        ),
        ("something new", JobState(), False),
        (
            "\targuments = {\n\t\t/p\n\t\t--port\n\t\t1 2\n\t}\n\truns = 0\n",
            JobState(arguments=("/p", "--port", "1 2")),
            False,
        ),
        ("\targuments = {\n\t\t/p\n\t}", JobState(arguments=("/p",)), False),
        # Of an argument with a line's end nobody knows where it begins.
        ("\targuments = {\n\t\t/p\nx\n\t}\n", JobState(), False),
        ("\truns = 1\n\tpid = ²\n\tlast exit code = " + "9" * 5000, JobState(runs=1), False),
        (
            "\truns = 1\n\tlast terminating signal = \x1b[2JKilled\n",
            JobState(runs=1, last_signal="[2JKilled"),
            True,
        ),
    ],
)
def test_other_ways_to_be(lines: str, expected: JobState, has_ended: bool) -> None:
    found = parse_print(lines)
    assert (found, found.has_ended) == (expected, has_ended)
