"""Progress events: numbered, resumable, and a reader is woken by the next one."""

import threading

from linkwright.agent.progress import Progress


def test_a_reader_goes_on_where_it_stopped() -> None:
    progress = Progress()
    progress.emit("step", "a")
    cursor = progress.last
    progress.emit("step", "b")
    progress.emit("settled", settled=True)
    assert [(e.kind, e.subject) for e in progress.after(cursor, 0)] == [("step", "b"), ("settled", "")]


def test_a_reader_without_news_gets_nothing() -> None:
    progress = Progress()
    progress.emit("step")
    assert progress.after(progress.last, 0.01) == []


def test_a_waiting_reader_is_woken() -> None:
    progress = Progress()
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.extend(e.subject for e in progress.after(0, 10)))
    reader.start()
    progress.emit("step", "now")
    reader.join(10)
    assert got == ["now"]


def test_old_events_fall_out() -> None:
    progress = Progress(keep=2)
    for n in range(5):
        progress.emit("step", str(n))
    assert [e.subject for e in progress.after(0, 0)] == ["3", "4"]
