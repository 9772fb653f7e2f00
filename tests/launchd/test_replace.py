"""A new job in the place of one that runs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.launchd.test_ready import OTHER, READY, answering
from tests.launchd.test_service import BUSY, GONE, OK, Script, Signalled, Silent, ending_tests, service
from tests.serving.process import free_port
from warmd.launchd.errors import PortTakenError
from warmd.launchd.hold import HELD
from warmd.launchd.install import CannotChangeError, check_can_write
from warmd.launchd.launchctl import Answer, JobState, LaunchctlError
from warmd.launchd.ready import Address
from warmd.launchd.replace import NO_SERVICE, NOT_AGAIN, check_port, not_loaded, replace_job

GUI = "gui/501/dev.warmd"
RUNNING = Answer(0, "\tpid = 7\n\truns = 1\n")
NOWHERE = Address("127.0.0.1", 9)
AGAIN = "nothing has changed: the service that was there before is loaded again"


def replace(script: Script, path: Path, address: Address | None = None) -> list[str]:
    """Have "new" take the place of what is in a file; what was told meanwhile."""
    told: list[str] = []

    def write(in_background: bool) -> None:
        path.write_text("new")

    try:
        replace_job(service(script), path, write, address or Address(port=free_port()), told.append)
    except (LaunchctlError, PortTakenError, KeyboardInterrupt) as error:
        told.append(type(error).__name__)
    return told


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "dev.warmd.plist"
    found.write_text("old")
    return found


def taken_out(script: Script) -> Script:
    """The job runs, and can be taken out."""
    return script.on(f"print {GUI}", RUNNING, RUNNING, GONE)


def test_what_works_stays(path: Path) -> None:
    assert (replace(taken_out(Script()), path), path.read_text()) == ([], "new")


def test_a_job_that_launchd_does_not_take_leaves_the_old_one_loaded(path: Path) -> None:
    script = taken_out(Script()).on(f"bootstrap gui/501 {path}", Answer(134), OK)
    script.on(f"bootstrap user/501 {path}", Answer(134))
    assert (replace(script, path), path.read_text()) == ([AGAIN, "WillNotLoadError"], "old")
    assert script.calls[-1] == f"bootstrap gui/501 {path}"


def test_a_port_that_is_taken_meanwhile_leaves_the_old_one_loaded(path: Path) -> None:
    script = taken_out(Script())
    with answering(READY) as address:
        assert replace(script, path, address) == [AGAIN, "PortTakenError"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("number", HELD)
def test_a_signal_while_the_old_one_goes_leaves_it_loaded(path: Path, number: int) -> None:
    script = Signalled(f"bootout {GUI}", number)
    script.on(f"print {GUI}", RUNNING, RUNNING, RUNNING, RUNNING, GONE)
    with ending_tests(number):
        assert (replace(script, path), path.read_text()) == ([AGAIN, "KeyboardInterrupt"], "old")
    assert [call for call in script.calls if not call.startswith("print")] == [
        f"bootout {GUI}",
        f"enable {GUI}",
        f"bootstrap gui/501 {path}",
    ]


@pytest.mark.parametrize("number", HELD)
def test_a_signal_while_the_new_one_is_loaded_counts_afterwards(path: Path, number: int) -> None:
    script = Signalled("bootstrap", number)
    taken_out(script)
    with ending_tests(number):
        assert (replace(script, path), path.read_text()) == (["KeyboardInterrupt"], "new")


def test_a_signal_while_the_old_one_is_put_back_counts_afterwards(path: Path) -> None:
    script = Signalled("enable", signal.SIGINT)
    taken_out(script).on(f"bootstrap gui/501 {path}", Answer(134), OK)
    script.on(f"bootstrap user/501 {path}", Answer(134))
    assert (replace(script, path), path.read_text()) == ([AGAIN, "KeyboardInterrupt"], "old")


def test_what_is_ignored_stays_ignored(path: Path) -> None:
    script = Signalled(f"bootout {GUI}", signal.SIGHUP)
    taken_out(script)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert (replace(script, path), path.read_text()) == ([], "new")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_job_that_goes_late_is_loaded_again(path: Path) -> None:
    # 40 s are 81 looks: it is still there after these, and goes soon after.
    script = Script().on(f"print {GUI}", *[RUNNING] * 90, GONE)
    assert (replace(script, path), path.read_text()) == ([AGAIN, "WillNotUnloadError"], "old")
    assert script.calls[-1] == f"bootstrap gui/501 {path}"


@pytest.mark.parametrize(
    ("call", "looks", "error"),
    [
        (f"bootout {GUI}", 3, "WillNotLoadError"),
        # 81 looks, and some more.
        (f"bootout {GUI}", 90, "WillNotUnloadError"),
        # After the new one is refused.
        ("enable user/501/dev.warmd", 1, "WillNotLoadError"),
    ],
)
def test_looks_without_an_answer_leave_the_old_one_loaded(
    path: Path, call: str, looks: int, error: str
) -> None:
    script = Silent(call, looks)
    answers = (OK,) if error == "WillNotUnloadError" else (Answer(134), OK)
    taken_out(script).on(f"bootstrap gui/501 {path}", *answers)
    script.on(f"bootstrap user/501 {path}", Answer(134))
    assert (replace(script, path), path.read_text()) == ([AGAIN, error], "old")


def test_a_job_that_stays_is_told(path: Path) -> None:
    script = Script().on(f"print {GUI}", RUNNING)
    assert (replace(script, path), path.read_text()) == (
        [
            "launchd still has the service that was there before, and may yet drop it: see `warmd doctor`",
            "WillNotUnloadError",
        ],
        "old",
    )


def test_an_old_one_that_does_not_load_again_is_told(path: Path) -> None:
    script = taken_out(Script()).on(f"bootstrap gui/501 {path}", BUSY)
    script.on(f"bootstrap user/501 {path}", BUSY)
    told = replace(script, path)
    assert told[0].startswith(f"{NOT_AGAIN}; {NO_SERVICE}: launchctl bootstrap")
    path.unlink()
    script = taken_out(Script()).on(f"bootstrap gui/501 {path}", Answer(134))
    script.on(f"bootstrap user/501 {path}", Answer(134))
    assert replace(script, path)[0] == (
        f"the service that ran before had no file that could be loaded again; {NO_SERVICE}"
    )


def test_where_nothing_was_loaded_nothing_is_loaded_again(path: Path) -> None:
    script = (
        Script().on(f"bootstrap gui/501 {path}", Answer(134)).on(f"bootstrap user/501 {path}", Answer(134))
    )
    assert (replace(script, path), path.read_text()) == (["WillNotLoadError"], "old")


def plist(port: int) -> dict[str, object]:
    return {"ProgramArguments": ["/p", "-m", "warmd", "serve", "--port", str(port)]}


def test_the_port_may_be_the_services_own_and_nobody_elses() -> None:
    with answering(READY) as address:
        check_port(address, JobState(pid=7), plist(address.port))
        check_port(address, JobState(pid=7), None)
        # Its own process is another, or listens elsewhere, or there is none.
        for pid, port in ((8, address.port), (7, 9), (None, address.port)):
            with pytest.raises(PortTakenError):
                check_port(address, JobState(pid=pid), plist(port))
        with pytest.raises(PortTakenError):
            check_port(address, None, None)
    check_port(Address(port=free_port()), None, None)
    # Whose file nobody can read may listen anywhere: only its own word says that it does here.
    with answering(OTHER) as address, pytest.raises(PortTakenError):
        check_port(address, JobState(pid=7), None)
    # What is loaded counts, not what its file has become.
    with answering(OTHER) as address:
        arguments = ("/p", "-m", "warmd", "serve", "--port", str(address.port))
        check_port(address, JobState(pid=7, arguments=arguments), plist(9))


def test_a_file_that_cannot_be_written_is_told_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "dev.warmd.plist"
    check_can_write(path, b"x")
    assert list(path.parent.iterdir()) == []
    path.mkdir()
    with pytest.raises(CannotChangeError, match=rf"^cannot change {path}: Is a directory$"):
        check_can_write(path, b"x")
    with pytest.raises(CannotChangeError, match=r"^cannot change /proc/1/nowhere/x"):
        check_can_write(Path("/proc/1/nowhere/x"), b"x")


def test_what_launchd_has_is_compared_with_the_file_as_far_as_it_tells() -> None:
    command, variables = ("/p", "-m", "warmd", "serve"), {"HOME": "/h", "WARMD_LOG_LEVEL": "info"}
    installed = {"ProgramArguments": [*command], "EnvironmentVariables": variables, "ExitTimeOut": 30}
    given = {**variables, "XPC_SERVICE_NAME": "dev.warmd", "MallocSpaceEfficient": "1"}
    same = JobState(arguments=command, environment=given, settings={"ExitTimeOut": "30"})
    # Of a job that launchd tells nothing of, and of one of which it tells only its own variables.
    silent = JobState(), JobState(environment={"XPC_SERVICE_NAME": "dev.warmd"})
    assert [not_loaded(job, installed) for job in (same, *silent)] == [(), (), ()]
    other = JobState(
        arguments=(*command, "--x"),
        environment={"HOME": "/h", "WARMD_LOG_KEEP": "3"},
        settings={"ExitTimeOut": "5", "ThrottleInterval": "10"},
    )
    expected = ("command line", "WARMD_LOG_KEEP", "WARMD_LOG_LEVEL", "ExitTimeOut")
    assert not_loaded(other, installed) == expected
