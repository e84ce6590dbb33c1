// SPDX-License-Identifier: GPL-2.0

//! Repetitions of datagrams.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proto::gfarm::cache::window::{
    ReplayWindow,
    WINDOW_LEN, //
};

/// The model of the window: a list of all numbers.
#[derive(Default)]
struct Model(BTreeSet<u64>);

impl Model {
    fn accept(&mut self, sequence: u64) -> bool {
        let last = self.0.last().copied().unwrap_or(0);
        let is_old = sequence == 0 || last >= WINDOW_LEN && sequence <= last - WINDOW_LEN;
        !is_old && self.0.insert(sequence)
    }
}

#[test]
fn each_number_is_accepted_once() {
    // All sequences of five of seven numbers around the ends of a window.
    let numbers = [0, 1, 2, 63, 64, 65, 66];
    for mut order in 0..numbers.len().pow(5) {
        let (mut window, mut model) = (ReplayWindow::NEW, Model::default());
        for _ in 0..5 {
            let number = numbers[order % numbers.len()];
            order /= numbers.len();
            assert_eq!(window.accept(number), model.accept(number));
        }
    }
}

#[test]
fn the_largest_numbers_are_accepted() {
    let mut window = ReplayWindow::NEW;
    for number in [1, u64::MAX, u64::MAX - 63] {
        assert!(window.accept(number));
        assert!(!window.accept(number));
    }
    assert!(!window.accept(u64::MAX - 64), "behind the window");
    assert!(!window.accept(2), "far behind");
}

proptest! {
    #[test]
    fn any_order_is_as_in_the_model(numbers in prop::collection::vec(0u64..300, 0..400)) {
        let (mut window, mut model) = (ReplayWindow::NEW, Model::default());
        for number in numbers {
            prop_assert_eq!(window.accept(number), model.accept(number));
        }
    }
}
