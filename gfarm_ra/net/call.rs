// SPDX-License-Identifier: GPL-2.0

//! A question to gfmd that is under way, and its answer.

use kernel::{
    alloc::AllocError,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::{
    errno::{
        ENAMETOOLONG,
        ESTALE, //
    },
    memory,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU64,
            Ordering, //
        },
        Completion, //
    }, //
};

use super::{
    content::Query,
    setup::Trouble, //
};
use crate::proto::{
    closing::Fds,
    gfm::Fd,
    identity::Asked,
    name::Path,
    operation::ReplyError,
    question::{
        Answer,
        Kind,
        Part,
        Question, //
    },
    retry::Fault,
    xdr::{
        Decoder,
        Encoder, //
    }, //
};

/// The bytes for an answer that are allocated with a call.
const ANSWER_LEN: usize = 2048;

/// The maximum length of an answer, in bytes: some thousand entries or gfsds.
const ANSWER_LEN_MAX: usize = 1 << 20;

/// A question that is under way.
///
/// The task that asks owns it; the link has a reference until the answer has come, also if the task
/// does not wait any more. It can be asked again when it is done.
#[pin_data]
pub(super) struct Call {
    /// The names from the root to the object, with slashes.
    path: KVec<u8>,
    /// The encoded question. It is written anew only when the link has given it back, so who sends
    /// it does not wait for who receives its answer.
    #[pin]
    request: Mutex<KVec<u8>>,
    #[pin]
    state: Mutex<State>,
    #[pin]
    done: Completion,
    /// No task waits for the answer.
    is_abandoned: AtomicBool,
    /// The number of the question, see [`Asked`].
    number: AtomicU64,
}

/// The answer to a question, for the task that has asked it.
#[derive(Clone, Copy)]
pub(super) struct Answered {
    outcome: Result<(), Trouble>,
    /// The process that has answered.
    epoch: u32,
}

impl Answered {
    /// No answer comes, and no task waits for one.
    pub(super) const MOOT: Self = Self {
        outcome: Ok(()),
        epoch: 0,
    };

    /// No answer comes.
    pub(super) fn failed(trouble: Trouble) -> Self {
        Self {
            outcome: Err(trouble),
            epoch: 0,
        }
    }
}

/// The state of a call.
struct State {
    kind: Kind,
    /// The bytes of the answer so far.
    answer: KVVec<u8>,
    /// The memory that was allocated with the call, while a longer answer has more.
    reserve: KVVec<u8>,
    /// Whether there was no memory for more of the answer.
    is_short: bool,
    /// The part of the answer that the connection which receives it has received.
    progress: Option<Answer>,
    outcome: Result<(), Trouble>,
    /// The process that has answered.
    epoch: u32,
    asked_us: u64,
    asked_at: Instant<Monotonic>,
    /// The descriptor that the answer has brought.
    exported: Option<Fd>,
}

impl Call {
    /// Prepares a question about the object with this path. May sleep.
    pub(super) fn new(kind: Kind, path: KVec<u8>) -> Result<Arc<Self>> {
        memory::without_io(|| {
            let question = Question::new(kind, checked(&path)?);
            let request = KVec::with_capacity(question.len_max(), GFP_KERNEL)?;
            let answer = match kind {
                Kind::Close(_) => KVVec::with_capacity(256, GFP_KERNEL)?,
                _ => KVVec::with_capacity(ANSWER_LEN, GFP_KERNEL)?,
            };
            let state = State {
                kind,
                answer,
                reserve: KVVec::new(),
                is_short: false,
                progress: None,
                outcome: Ok(()),
                epoch: 0,
                asked_us: 0,
                asked_at: Instant::now(),
                exported: None,
            };
            let call = Arc::pin_init(
                pin_init!(Self {
                    path,
                    request <- new_mutex!(request, "Call::request"),
                    state <- new_mutex!(state, "Call::state"),
                    done <- Completion::new(),
                    is_abandoned: AtomicBool::new(false),
                    number: AtomicU64::new(0),
                }),
                GFP_KERNEL,
            )?;
            call.done.complete_all();
            Ok(call)
        })
    }

    /// Gets the call ready to be asked, perhaps again. It must not be under way.
    pub(super) fn begin(&self, kind: Kind, now_us: u64) -> Result {
        self.done.reinit();
        self.is_abandoned.store(false, Ordering::Relaxed);
        let question = Question::new(kind, checked(&self.path)?);
        let mut state = self.state.lock();
        (state.kind, state.asked_us, state.exported) = (kind, now_us, None);
        state.asked_at = Instant::now();
        state.progress = None;
        state.forget();
        drop(state);
        let mut request = self.request.lock();
        request.clear();
        // The capacity was allocated with the call.
        request.resize(question.len_max(), 0, GFP_NOWAIT)?;
        let mut to = Encoder::new(&mut request);
        question.encode(&mut to);
        let len = to.finish().map_err(|_| ENAMETOOLONG)?;
        request.truncate(len);
        Ok(())
    }

    /// Runs `send` with the bytes of the question.
    pub(super) fn with_request<R>(&self, send: impl FnOnce(&[u8]) -> R) -> R {
        send(&self.request.lock())
    }

    /// Returns what is asked.
    pub(super) fn kind(&self) -> Kind {
        self.state.lock().kind
    }

    /// Returns when it was asked, in microseconds.
    pub(super) fn asked_us(&self) -> u64 {
        self.state.lock().asked_us
    }

    /// No task waits for the answer any more.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::SeqCst);
    }

    /// Returns, once, the descriptor that gfmd has opened for a task that does not wait for it any
    /// more, and its process. To be called by the task after it has abandoned the call, and by the
    /// link after it has finished the call: one of them gets it.
    pub(super) fn take_orphan(&self) -> Option<(Fd, u32)> {
        if !self.is_abandoned() || !self.is_done() {
            return None;
        }
        let mut state = self.state.lock();
        let epoch = state.epoch;
        state.exported.take().map(|fd| (fd, epoch))
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::SeqCst)
    }

    /// Gives the call its place among the questions of the mount.
    pub(super) fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Waits for the answer. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` when the task is killed; the call is under way then.
    pub(super) fn wait(&self) -> Result {
        self.done.wait_killable()
    }

    /// Returns whether the call is not under way.
    pub(super) fn is_done(&self) -> bool {
        self.done.is_done()
    }

    /// Returns what a whole answer is for who has asked, and the descriptor that it has brought if
    /// that one does not learn of it.
    pub(super) fn answered(&self, epoch: u32) -> (Answered, Option<Fd>) {
        let mut state = self.state.lock();
        let (outcome, unknown) = match state.is_short {
            true => (Err(Trouble::of(Fault::NO_MEMORY)), state.exported.take()),
            false => (Ok(()), None),
        };
        (Answered { outcome, epoch }, unknown)
    }

    /// Returns the descriptors that gfmd was asked to close, and has not looked at: they stand
    /// behind one that it has refused, or it has refused the whole question.
    pub(super) fn left_open(&self) -> Fds {
        let state = self.state.lock();
        match (state.kind, state.progress) {
            (Kind::Close(fds), Some(answer)) => fds.last(answer.left_open(fds.len())),
            _ => Fds::NONE,
        }
    }

    /// The answer is complete, or will not come.
    pub(super) fn finish(&self, answered: Answered) {
        let mut state = self.state.lock();
        (state.outcome, state.epoch) = (answered.outcome, answered.epoch);
        drop(state);
        self.done.complete_all();
    }

    /// Returns what takes the next bytes of the answer, from the beginning or from where the last
    /// receiver has stopped.
    pub(super) fn receiver(&self) -> Result<Receiver<'_>> {
        let mut state = self.state.lock();
        let question = Question::new(state.kind, checked(&self.path)?);
        let answer = match state.progress {
            Some(answer) => answer,
            None => {
                state.forget();
                state.is_short = false;
                state.exported = None;
                Answer::new(&question)
            }
        };
        drop(state);
        Ok(Receiver {
            call: self,
            question,
            answer,
        })
    }

    /// The connection that was receiving the answer is lost: another one receives all of it.
    pub(super) fn restart(&self) {
        self.state.lock().progress = None;
    }

    /// Reads the answer, once: `each` gets each part, and the question that it answers.
    ///
    /// # Errors
    ///
    /// Returns the server's error, or why there is no answer, or the error of `each`; `ESTALE` if
    /// the names lead elsewhere.
    pub(super) fn read(
        &self,
        mut each: impl FnMut(Part<'_>, Query) -> Result,
    ) -> Result<(), Trouble> {
        let mut state = self.state.lock();
        state.outcome?;
        let question = Question::new(state.kind, checked(&self.path)?);
        let query = Query {
            asked: Asked {
                epoch: state.epoch,
                number: self.number.load(Ordering::Relaxed),
            },
            at: state.asked_at,
        };
        // `each` may sleep, so it does not run under the lock.
        let bytes = core::mem::take(&mut state.answer);
        drop(state);
        let result = read(&question, &bytes, &mut |part| each(part, query));
        let mut state = self.state.lock();
        state.answer = bytes;
        state.forget();
        result
    }
}

impl State {
    /// Keeps bytes of the answer. Without memory none of it is kept any more: the rest is received
    /// all the same, as those of others follow.
    fn keep(&mut self, bytes: &[u8]) {
        let kept = memory::without_io(|| {
            let len = self.answer.len().saturating_add(bytes.len());
            if len > self.answer.capacity() {
                self.grow(len)?;
            }
            self.answer.extend_from_slice(bytes, GFP_KERNEL)
        });
        self.is_short = kept.is_err();
        if self.is_short {
            self.forget();
        }
    }

    /// Makes room for an answer of so many bytes, and as many again.
    fn grow(&mut self, len: usize) -> Result<(), AllocError> {
        let mut longer = KVVec::with_capacity(len.saturating_mul(2), GFP_KERNEL)?;
        longer.extend_from_slice(&self.answer, GFP_KERNEL)?;
        let before = core::mem::replace(&mut self.answer, longer);
        if self.reserve.capacity() == 0 {
            self.reserve = before;
        }
        Ok(())
    }

    /// Forgets the answer. A long one has memory that others may lack, and an open file has its
    /// call as long as it is open: only that stays which was allocated with it, for an answer that
    /// comes when there is none.
    fn forget(&mut self) {
        if self.reserve.capacity() != 0 {
            self.answer = core::mem::take(&mut self.reserve);
        }
        self.answer.clear();
    }
}

fn checked(path: &[u8]) -> Result<Path<'_>> {
    Path::new(path).map_err(|error| error.errno().into())
}

/// Converts an error of an answer, all of which is there.
fn trouble(error: ReplyError) -> Trouble {
    Trouble::of(Fault::of_reply(error).unwrap_or(Fault::malformed("answer")))
}

fn read(
    question: &Question<'_>,
    bytes: &[u8],
    each: &mut dyn FnMut(Part<'_>) -> Result,
) -> Result<(), Trouble> {
    let mut answer = Answer::new(question);
    let mut from = Decoder::new(bytes);
    while !answer.is_over() {
        let part = match answer.part(question, &mut from) {
            Ok(part) => part,
            Err(ReplyError::Server(error)) if answer.is_stale(error) => {
                let fault = Fault::Server(error);
                let error = ESTALE;
                return Err(Trouble { fault, error });
            }
            Err(error) => return Err(trouble(error)),
        };
        each(part)?;
    }
    Ok(())
}

/// The receipt of an answer.
pub(super) struct Receiver<'c> {
    call: &'c Call,
    question: Question<'c>,
    answer: Answer,
}

/// The result of a step of a receipt.
pub(super) enum Step {
    /// More bytes are needed, at least so many.
    NeedMore(usize),
    /// The number of bytes that were taken.
    Taken(usize),
    /// The number of bytes that were taken, the last ones; the server has answered with an error,
    /// or not.
    Last(usize, Result<(), Fault>),
}

impl Receiver<'_> {
    /// Takes a part of the answer from the beginning of `input`.
    pub(super) fn step(&mut self, input: &[u8]) -> Result<Step, Trouble> {
        let mut from = Decoder::new(input);
        let part = self.answer.part(&self.question, &mut from);
        let exported = match part {
            Ok(Part::Exported(fd)) => Some(fd),
            _ => None,
        };
        let result = part.map(|_| ());
        let taken = from.consumed();
        match result {
            Err(ReplyError::NeedMore(more)) => return Ok(Step::NeedMore(more)),
            Err(ReplyError::Malformed(why)) => return Err(Trouble::of(Fault::Malformed(why))),
            _ => {}
        }
        let state = &mut *self.call.state.lock();
        if !self.call.is_abandoned() && !state.is_short {
            let bytes = input.get(..taken).unwrap_or_default();
            if state.answer.len().saturating_add(taken) > ANSWER_LEN_MAX {
                return Err(Trouble::of(Fault::malformed("length of the answer")));
            }
            state.keep(bytes);
        }
        state.exported = exported.or(state.exported);
        state.progress = Some(self.answer);
        Ok(match result {
            Err(ReplyError::Server(error)) => Step::Last(taken, Err(Fault::Server(error))),
            _ if self.answer.is_over() => Step::Last(taken, Ok(())),
            _ => Step::Taken(taken),
        })
    }
}
