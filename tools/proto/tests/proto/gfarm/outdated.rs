// SPDX-License-Identifier: GPL-2.0

//! Pages that are dropped before other attributes are shown, and the tasks that drop them.

use proptest::prelude::*;
use proto::gfarm::outdated::{
    Look,
    Pages, //
};

/// Pages of the content of 3 changes, 4096 bytes.
const LOOK: Look = Look {
    changes: 3,
    live_size: None,
    dropped_at: 3,
    shown_size: 4096,
};

#[test]
fn pages_of_the_content_stay_as_long_as_the_file_does_not_grow() {
    for may_wait in [false, true] {
        assert_eq!(LOOK.decide(4096, may_wait), Pages::Stay(4096));
        assert_eq!(LOOK.decide(10, may_wait), Pages::Stay(10));
    }
    assert_eq!(LOOK.decide(4097, true), Pages::Drop(4097));
    let live = Look {
        live_size: Some(100),
        ..LOOK
    };
    assert_eq!(live.decide(5000, true), Pages::Stay(100));
    let live = Look {
        live_size: Some(5000),
        ..LOOK
    };
    assert_eq!(live.decide(100, true), Pages::Drop(5000));
}

#[test]
fn pages_of_another_content_are_dropped() {
    for dropped_at in [2, 4] {
        let look = Look { dropped_at, ..LOOK };
        assert_eq!(look.decide(4096, true), Pages::Drop(4096));
    }
}

proptest! {
    #[test]
    fn who_must_not_wait_drops_nothing(
        changes in 0u64..3,
        dropped_at in 0u64..3,
        shown_size in 0u64..3,
        live_size in proptest::option::of(0u64..3),
        told_size in 0u64..3,
    ) {
        let look = Look { changes, live_size, dropped_at, shown_size };
        let expected = match look.decide(told_size, true) {
            Pages::Drop(_) => Pages::Leave,
            other => other,
        };
        prop_assert_eq!(look.decide(told_size, false), expected);
    }
}

/// A step of the tasks that change the size of a file.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The task that has an answer of gfmd goes on, or one begins that was told this size.
    Gfmd(u64),
    /// A gfsd tells this size behind a read, which ends next.
    Read(u64),
    /// The read ends.
    End,
    /// gfmd has told another task of another content.
    Renewed,
    /// The task goes on, or one begins that is to read, and drops the pages of another content.
    Reader,
}

/// The next action of the task with an answer of gfmd, and the size that it has in mind.
#[derive(Clone, Copy, Debug)]
enum Task {
    Idle,
    Drop(u64, Look, Then),
    Dropped(u64, Look, Then),
    Set(u64),
}

/// The end of a task that drops pages: it sets attributes, or reads.
#[derive(Clone, Copy, Debug)]
enum Then {
    Set,
    Read,
}

/// A file whose pages are dropped, and whose size is set, as the driver does it.
#[derive(Debug)]
struct File {
    look: Look,
    task: Task,
    /// The size that a gfsd has told behind a read that has not ended: a drop waits for that.
    reading: Option<u64>,
    /// The count of changes, and the size that the end of a read has set.
    ended: Option<(u64, u64)>,
}

impl File {
    fn step(&mut self, step: Step) {
        match step {
            Step::Gfmd(told) => self.go_on(told, Then::Set),
            Step::Reader => {
                let has_nothing = self.look.dropped_at == self.look.changes;
                if !matches!(self.task, Task::Idle) || !has_nothing {
                    self.go_on(self.look.shown_size, Then::Read);
                }
            }
            Step::Read(size) => {
                if self.look.live_size.is_some_and(|live| live != size) {
                    self.look.changes += 1;
                }
                self.look.live_size = Some(size);
                self.reading = Some(size);
            }
            Step::End => {
                if let Some(size) = self.reading.take() {
                    self.look.shown_size = self.look.ended(Some(size));
                    let is_set = self.look.shown_size == size && self.look.live_size == Some(size);
                    self.ended = is_set.then_some((self.look.changes, size)).or(self.ended);
                }
            }
            Step::Renewed => {
                self.look.changes += 1;
                self.look.live_size = None;
            }
        }
    }

    fn go_on(&mut self, told: u64, then: Then) {
        self.task = match self.task {
            Task::Idle => match self.look.decide(told, true) {
                Pages::Stay(size) => Task::Set(size),
                Pages::Drop(size) => Task::Drop(size, self.look, then),
                Pages::Leave => panic!("it may wait"),
            },
            Task::Drop(size, look, then) if self.reading.is_none() => {
                self.look.shown_size = size;
                Task::Dropped(size, look, then)
            }
            Task::Drop(..) => self.task,
            Task::Dropped(size, look, then) => {
                self.look.dropped_at = look.changes;
                self.look.shown_size = self.look.ended(None);
                match (self.look.again(&look), then) {
                    (Some(size), _) => Task::Drop(size, self.look, then),
                    (None, Then::Set) => Task::Set(size),
                    (None, Then::Read) => Task::Idle,
                }
            }
            Task::Set(size) => {
                self.look.shown_size = self.look.shown(size);
                Task::Idle
            }
        };
    }
}

#[test]
fn a_read_that_was_waited_for_tells_a_larger_size() {
    let mut look = Look {
        shown_size: 3,
        changes: 4,
        ..LOOK
    };
    assert_eq!(look.decide(0, true), Pages::Drop(0));
    let dropped = look;
    (look.live_size, look.dropped_at, look.shown_size) = (Some(1), 4, 0);
    assert_eq!(look.again(&dropped), Some(1));
    look.shown_size = 1;
    assert_eq!(look.again(&dropped), None);
    (look.changes, look.live_size) = (5, Some(2));
    assert_eq!(look.again(&dropped), None);
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u64..6).prop_map(Step::Gfmd),
        2 => (0u64..6).prop_map(Step::Read),
        2 => Just(Step::End),
        1 => Just(Step::Renewed),
        2 => Just(Step::Reader),
    ];
    proptest::collection::vec(step, 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// The end of the content stays where a read has found it, although older answers of gfmd that
    /// are under way meanwhile say something else; and no size is shown that is larger.
    #[test]
    fn an_answer_that_is_older_does_not_move_the_end_of_the_file(
        shown_size in 0u64..6,
        steps in steps(),
    ) {
        let look = Look { shown_size, ..LOOK };
        let mut file = File { look, task: Task::Idle, reading: None, ended: None };
        for step in steps {
            file.step(step);
        }
        file.step(Step::End);
        while !matches!(file.task, Task::Idle) {
            file.go_on(0, Then::Set);
        }
        let Look { changes, live_size, dropped_at, shown_size } = file.look;
        if dropped_at != changes {
            // The pages of a content before it are there, and are dropped by who reads next.
            return Ok(());
        }
        if let Some((_, size)) = file.ended.filter(|(at, _)| *at == changes) {
            prop_assert_eq!(shown_size, size, "{:?}", file);
        }
        if let Some(live) = live_size {
            prop_assert!(shown_size <= live, "{:?}", file);
        }
    }
}
