// SPDX-License-Identifier: GPL-2.0

//! CPUs, each of which one thread of a test runs on, and the interrupt that one has all others
//! handle.

use loom::sync::atomic::{AtomicBool, Ordering};
use std::cell::Cell;

/// The number of CPUs.
pub const CPUS: usize = 3;

struct Cpu {
    /// A thread of the test runs on it; the others have nothing to handle.
    is_used: AtomicBool,
    is_interrupted: AtomicBool,
    has_answered: AtomicBool,
}

impl Cpu {
    fn new() -> Self {
        Self {
            is_used: AtomicBool::new(false),
            is_interrupted: AtomicBool::new(false),
            has_answered: AtomicBool::new(false),
        }
    }
}

loom::lazy_static! {
    static ref ALL: [Cpu; CPUS] = [Cpu::new(), Cpu::new(), Cpu::new()];
}

loom::thread_local! {
    static THIS: Cell<usize> = Cell::new(0);
}

/// Returns the number of this thread's CPU: 0 for the one that began the test.
pub fn this() -> usize {
    THIS.with(Cell::get)
}

/// Says that a thread of the test will run on this CPU.
pub fn use_for_a_thread(number: usize) {
    ALL[number].is_used.store(true, Ordering::Relaxed);
}

/// Runs a thread of a test on a CPU, which is idle afterwards.
pub fn on<T>(number: usize, run: impl FnOnce() -> T) -> T {
    THIS.with(|this| this.set(number));
    look();
    let result = run();
    ALL[number].has_answered.store(true, Ordering::Release);
    result
}

/// Handles the interrupt if there is one: it may come between any two steps, and does here.
pub fn look() {
    let cpu = &ALL[this()];
    if cpu.is_interrupted.load(Ordering::Acquire) {
        cpu.has_answered.store(true, Ordering::Release);
    }
}

/// Interrupts all other CPUs, and waits until they have handled that (`kick_all_cpus_sync()`).
/// Once in a test.
pub fn kick_all_cpus_sync() {
    let others = || ALL.iter().enumerate().filter(|(n, _)| *n != this());
    for (_, cpu) in others() {
        cpu.is_interrupted.store(true, Ordering::Release);
    }
    for (_, cpu) in others().filter(|(_, cpu)| cpu.is_used.load(Ordering::Relaxed)) {
        while !cpu.has_answered.load(Ordering::Acquire) {
            loom::thread::yield_now();
        }
    }
}
