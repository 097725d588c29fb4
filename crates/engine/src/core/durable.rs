//! Begins and ends commits, and continues what waited for durability.

use postrider_store::StoreError;

use super::alarms::Alarm;
use super::commits::Ack;
use super::messages::Action;
use super::state::Core;

impl Core {
    pub(super) fn begin_commit(&mut self) {
        if self.shards.are_doubted() || self.alarms.is_set(Alarm::Commit) {
            return;
        }
        if let Some(commit) = self.commits.begin(self.shards.leases()) {
            self.actions.push(Action::Commit(Box::new(commit)));
        }
    }

    /// Handles the end of the running commit.
    pub(super) fn settled(&mut self, result: Result<(), StoreError>) {
        self.commits.ended();
        match result {
            Ok(()) => self.committed(),
            Err(StoreError::Stopped(why)) => self.actions.push(Action::Stop(why)),
            Err(StoreError::Fenced { shard }) => self.fenced(shard),
            Err(StoreError::Internal(_)) if self.shards.are_shared() => {
                // The state in memory differs from the store, and repeating the commit would not
                // help: everything that it touches is read again.
                let touched = self.commits.touched();
                self.lose_and_renew(&touched);
            }
            Err(
                StoreError::DiskFull { .. }
                | StoreError::NotWritable { .. }
                | StoreError::Locked { .. }
                | StoreError::NewerVersion { .. }
                | StoreError::Corrupt { .. }
                | StoreError::Unavailable(_)
                | StoreError::UnknownCursor
                | StoreError::Busy
                | StoreError::TooSlow(_)
                | StoreError::Internal(_),
            ) => {
                let pause = self.commits.next_pause();
                self.alarms.set(Alarm::Commit, self.now.saturating_add(pause));
            }
        }
    }

    /// Handles a commit that is durable.
    fn committed(&mut self) {
        for ack in self.commits.durable(self.reads.barrier()) {
            match ack {
                Ack::Probe(id) => self.rings.probes.push_back(id),
                Ack::Answer(_, answer) => answer(true),
                Ack::Replay(id) => self.replay_durable(id),
                Ack::Unfinished(tenant, subscription) => self.cancel_all(tenant, subscription),
                Ack::PutReplay(job, reply) => self.actions.push(Action::PutReplay(job, reply)),
                Ack::ReadBack(ix, lane) => self.read_back_when_low(ix, lane),
                Ack::GiveBack(decision) => self.give_back(decision),
            }
        }
    }
}
