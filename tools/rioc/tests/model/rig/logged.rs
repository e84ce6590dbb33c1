// SPDX-License-Identifier: GPL-2.0

//! A store on a log: IO ends, segments are collected, and power fails.

use super::*;

impl Readable for Logged<Heap> {
    fn block(&self, disk: &Disk, stored: &Stored, block: u8) -> Block {
        let place = body::place_of(stored, block);
        let mut bytes = vec![0; body::TAGGED_BYTES];
        match self.at(place) {
            Some(there) => bytes.copy_from_slice(there),
            None => disk.look(place, &mut bytes),
        }
        let (_, block) = body::block(&bytes, stored, &Crc).expect("the block");
        block.try_into().unwrap()
    }

    fn durable_up_to(&self) -> u64 {
        self.durable()
    }

    fn settle_all(store: &mut Store<Tables, Self>, begun: &mut Begun) {
        store.settle((begun, &Crc));
    }

    fn end_io(rig: &mut Rig<Self>) -> bool {
        rig.collect(false);
        rig.end_io()
    }
}

impl Rig<Logged<Heap>> {
    pub(crate) fn on_log(slots: usize, seed: u64, (has_cache, fault): (bool, Fault)) -> Self {
        let mut random = Random::new(seed);
        let mut disk = format(slots, &mut random);
        let assembled = assemble(&mut disk, has_cache, &mut random);
        let (index, logged, end) = assembled.unwrap();
        let begun = Begun::new(disk, has_cache);
        let store = Store::new(index, claims(&mut random), logged);
        Self::with((store, begun), (random, fault), end)
    }

    /// An IO ends, if one is in flight; returns whether one was.
    pub(crate) fn end_io(&mut self) -> bool {
        let fault = self.fault;
        let flushes = |io| match io {
            Io::Dump => fault != Fault::DumpNotFlushed,
            _ => fault != Fault::FlushNotDone,
        };
        let is_slow = self.slow_flushes && self.random.below(8) > 0;
        let disk = &mut self.begun.disk;
        let ended = disk.end_one(&mut self.random, is_slow, flushes);
        if let Some(io) = ended {
            self.store.medium_mut().ended(io, true);
            if let Io::Batch(_) = io {
                self.tally.batches += 1;
            }
        }
        ended.is_some()
    }

    /// Takes a step of collecting: a batch is read, or as much of it is moved as there is room for.
    pub(crate) fn collect(&mut self, wanted: bool) {
        if self.victim.is_none() && (wanted || self.store.medium_mut().is_low()) {
            let victim = self.store.medium_mut().begin_collecting();
            self.victim = victim.map(|victim| (victim, vec![0; 120 << 10], false));
        }
        let Some((mut victim, mut column, is_loaded)) = self.victim.take() else {
            return;
        };
        let (layout, tag) = self.store.medium().reading();
        if !is_loaded {
            let disk = &mut self.begun.disk;
            if victim.load(disk, &mut column, (&layout, tag), &Crc) {
                self.victim = Some((victim, column, true));
            } else {
                self.store.medium_mut().end_collecting(&victim);
                self.tally.moved += 1;
            }
            return;
        }
        let with = (&mut self.begun, &Crc);
        let moved = self.store.collect((&mut victim, &column), with);
        self.victim = Some((victim, column, moved != Moved::All));
    }

    /// Takes a step of what is left to be done.
    pub(crate) fn reap(&mut self) {
        let _ = self.store.reap((&mut self.begun, &Crc));
    }

    /// Lets all end that is in flight.
    pub(crate) fn drain(&mut self) {
        while !self.held.is_empty() {
            self.end_read(0);
        }
        for round in 0.. {
            assert!(round < 2000, "stuck: {:?}", self.store.medium().room());
            self.settle();
            self.step_some(true);
            self.settle();
            self.answer();
            while self.end_io() {
                self.settle();
            }
            self.collect(false);
            self.reap();
            if self.running.is_empty() && self.store.medium().is_idle() {
                return;
            }
        }
    }

    /// Whether the log is refused when all is durable and the newer slot of its superblock is
    /// damaged. If it is not, nothing is lost.
    pub(crate) fn tells_of_a_damaged_slot(&mut self) -> bool {
        let mut disk = self.begun.disk.clone();
        disk.flush_cache();
        disk.damage_newer_slot();
        let Ok((_, _, end)) = assemble(&mut disk, true, &mut Random::new(1)) else {
            return true;
        };
        assert!(end >= self.answered, "something is lost");
        false
    }

    /// Power fails, and the store begins again.
    pub(crate) fn crash(&mut self) {
        self.begun.disk.lose_power(&mut self.random);
        let has_cache = self.begun.has_cache;
        let assembled = assemble(&mut self.begun.disk, has_cache, &mut self.random);
        let (index, logged, end) = assembled.unwrap();
        assert!(end >= self.answered, "{end} is before {}", self.answered);
        let slots = index.slots().count();
        self.store = Store::new(index, claims(&mut self.random), logged);
        self.objects = self.history.range(..=end).last().unwrap().1.clone();
        self.history = BTreeMap::from([(end, self.objects.clone())]);
        self.carried_out.retain(|_, batch| *batch <= end);
        let incarnations: Vec<_> = self.clients.iter().map(Client::incarnation).collect();
        self.clients = clients();
        self.leases = vec![Vec::new(); CLIENTS];
        self.victim = None;
        self.held.clear();
        self.begun.begins.clear();
        self.attach();
        for (number, before) in incarnations.into_iter().enumerate() {
            // A client may send again what it has sent if something of it is known.
            let mut known = self.carried_out.keys();
            let is_known = known.any(|(client, _)| *client == number);
            assert!(!is_known || self.clients[number].incarnation() == before);
        }
        self.check();
        for slot in 0..slots {
            while self.store.trim(slot, (&mut self.begun, &Crc)) == Ok(true) {}
        }
        self.check();
        self.tally.crashes += 1;
        // Clients that got no answer send again what they had sent.
        for (_, mut one) in std::mem::take(&mut self.running) {
            let Some(ticket) = one.request.ticket else {
                continue;
            };
            one.request.incarnation = self.clients[one.request.client].incarnation();
            self.tally.sent_again += 1;
            let key = (one.request.client, ticket.word());
            let was_done = self.carried_out.contains_key(&key);
            match self.send(one.request) {
                Err(Arrived::Answer(outcome)) if was_done => {
                    assert_eq!(outcome, Outcome::default());
                    self.tally.carried_out_before += 1;
                }
                // Its lease is gone, too.
                Err(Arrived::Answer(outcome)) => assert_eq!(outcome.errno, 116),
                other => assert!(other.is_ok() && !was_done, "{other:?} {was_done}"),
            }
        }
    }
}
