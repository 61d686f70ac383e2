//! The owner's log, as the crate reads it.

use crate::border::{entry_in, snapshot_in, CEntry, CLog, CSnapshot};
use raft::prelude::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::ffi::c_void;

pub struct Log {
    pub functions: CLog,
    pub hard_state: HardState,
    pub members: ConfState,
}

/// Takes what the log hands over. A null entry or one of an unknown kind makes it bad for good.
#[derive(Default)]
pub struct Entries {
    taken: Vec<Entry>,
    bad: bool,
}

impl Entries {
    /// # Safety
    /// `entry` is null or valid.
    pub unsafe fn take(&mut self, entry: *const CEntry) {
        match entry.as_ref().and_then(|entry| entry_in(entry)) {
            Some(entry) => self.taken.push(entry),
            None => self.bad = true,
        }
    }
}

#[derive(Default)]
pub struct TakenSnapshot(Option<Snapshot>);

impl TakenSnapshot {
    /// # Safety
    /// `snapshot` is null or valid.
    pub unsafe fn take(&mut self, snapshot: *const CSnapshot) {
        self.0 = snapshot.as_ref().map(|snapshot| snapshot_in(snapshot));
    }
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(
            self.hard_state.clone(),
            self.members.clone(),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        let mut sink = Entries::default();
        let functions = &self.functions;
        let max = max_size.into().unwrap_or(u64::MAX);
        let place = &mut sink as *mut Entries as *mut c_void;
        if (functions.entries)(functions.owner, low, high, max, place) == 0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let whole = sink
            .taken
            .iter()
            .enumerate()
            .all(|(i, entry)| entry.index == low + i as u64);
        assert!(!sink.bad, "the log has an entry of an unknown kind");
        assert!(whole, "the log's entries have gaps");
        assert!(!sink.taken.is_empty(), "the log gave no entry");
        Ok(sink.taken)
    }

    fn term(&self, index: u64) -> Result<u64> {
        let functions = &self.functions;
        if index + 1 < (functions.first_index)(functions.owner) {
            return Err(Error::Store(StorageError::Compacted));
        }
        if index > (functions.last_index)(functions.owner) {
            return Err(Error::Store(StorageError::Unavailable));
        }
        Ok((functions.term)(functions.owner, index))
    }

    fn first_index(&self) -> Result<u64> {
        Ok((self.functions.first_index)(self.functions.owner))
    }

    fn last_index(&self) -> Result<u64> {
        Ok((self.functions.last_index)(self.functions.owner))
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        let mut sink = TakenSnapshot::default();
        let functions = &self.functions;
        let place = &mut sink as *mut TakenSnapshot as *mut c_void;
        let unavailable = Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        if (functions.snapshot)(functions.owner, request_index, to, place) == 0 {
            return unavailable;
        }
        match sink.0 {
            Some(snapshot) if snapshot.get_metadata().index >= request_index.max(1) => Ok(snapshot),
            _ => unavailable,
        }
    }
}
