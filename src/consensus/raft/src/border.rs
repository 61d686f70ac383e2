//! The structs of gpusched_raft.h, and their values on this side.

use bytes::Bytes;
use protobuf::Message as _;
use raft::prelude::{
    ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, Entry, EntryType, Message,
    MessageType, Snapshot,
};
use std::slice;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CBytes {
    pub data: *const u8,
    pub size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CIds {
    pub data: *const u64,
    pub size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CEntry {
    pub index: u64,
    pub term: u64,
    pub kind: u32,
    pub data: CBytes,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CMembers {
    pub voters: CIds,
    pub learners: CIds,
    pub voters_outgoing: CIds,
    pub learners_next: CIds,
    pub auto_leave: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CSnapshot {
    pub index: u64,
    pub term: u64,
    pub members: CMembers,
    pub data: CBytes,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CMessage {
    pub kind: u32,
    pub reject: u8,
    pub to: u64,
    pub from: u64,
    pub term: u64,
    pub log_term: u64,
    pub index: u64,
    pub commit: u64,
    pub commit_term: u64,
    pub request_snapshot: u64,
    pub reject_hint: u64,
    pub context: CBytes,
    pub entries: *const CEntry,
    pub entry_count: usize,
    pub snapshot: *const CSnapshot,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CLog {
    pub owner: *mut std::ffi::c_void,
    pub first_index: extern "C" fn(*mut std::ffi::c_void) -> u64,
    pub last_index: extern "C" fn(*mut std::ffi::c_void) -> u64,
    pub term: extern "C" fn(*mut std::ffi::c_void, u64) -> u64,
    pub entries:
        extern "C" fn(*mut std::ffi::c_void, u64, u64, u64, *mut std::ffi::c_void) -> u8,
    pub snapshot: extern "C" fn(*mut std::ffi::c_void, u64, u64, *mut std::ffi::c_void) -> u8,
}

#[repr(C)]
pub struct COptions {
    pub id: u64,
    pub boot: u64,
    pub seed: u64,
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
    pub applied: u64,
    pub election_ticks: u64,
    pub heartbeat_ticks: u64,
    pub message_bytes_max: u64,
    pub messages_in_flight_max: u64,
    pub uncommitted_bytes_max: u64,
    pub committed_bytes_max: u64,
    pub members: CMembers,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CRead {
    pub id: u64,
    pub index: u64,
}

#[repr(C)]
pub struct CReady {
    pub number: u64,
    pub has_hard_state: u8,
    pub must_sync: u8,
    pub messages_wait: u8,
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
    pub entries: *const CEntry,
    pub entry_count: usize,
    pub snapshot: *const CSnapshot,
    pub committed: *const CEntry,
    pub committed_count: usize,
    pub messages: *const CMessage,
    pub message_count: usize,
    pub reads: *const CRead,
    pub read_count: usize,
}

#[repr(C)]
pub struct CState {
    pub role: u32,
    pub leader: u64,
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
    pub applied: u64,
    pub persisted: u64,
    pub last_index: u64,
    pub transferring_to: u64,
    pub election_ticks: u64,
    pub members_pending: u8,
    pub joint: u8,
    pub promotable: u8,
    pub committed_in_term: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CProgress {
    pub id: u64,
    pub matched: u64,
    pub next: u64,
    pub active: u8,
    pub needs_snapshot: u8,
    pub learner: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CChange {
    pub kind: u32,
    pub id: u64,
    pub store: u64,
}

pub const ENTRY_DATA: u32 = 0;
pub const ENTRY_MEMBERS: u32 = 1;

const CHANGE_VERSION: u8 = 1;
const CHANGE_BYTES: usize = 17;
pub const CHANGES_MAX: usize = 16;

impl CBytes {
    pub fn of(bytes: &[u8]) -> CBytes {
        CBytes {
            data: bytes.as_ptr(),
            size: bytes.len(),
        }
    }

    /// # Safety
    /// `data` points to `size` bytes, unless `size` is 0.
    pub unsafe fn get<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        slice::from_raw_parts(self.data, self.size)
    }
}

impl CIds {
    fn of(ids: &[u64]) -> CIds {
        CIds {
            data: ids.as_ptr(),
            size: ids.len(),
        }
    }

    unsafe fn get(self) -> Vec<u64> {
        if self.size == 0 {
            return Vec::new();
        }
        slice::from_raw_parts(self.data, self.size).to_vec()
    }
}

/// Changes of members in the flat form that journals and peers see.
pub fn flat_changes(changes: &[CChange]) -> Vec<u8> {
    let mut flat = vec![CHANGE_VERSION, changes.len() as u8];
    for change in changes {
        flat.push(change.kind as u8);
        flat.extend_from_slice(&change.id.to_le_bytes());
        flat.extend_from_slice(&change.store.to_le_bytes());
    }
    flat
}

/// Reads the flat form; None where it is none. No protobuf is parsed.
pub fn parse_changes(flat: &[u8]) -> Option<ConfChangeV2> {
    if flat.len() < 2 || flat[0] != CHANGE_VERSION || usize::from(flat[1]) > CHANGES_MAX {
        return None;
    }
    if flat.len() != 2 + usize::from(flat[1]) * CHANGE_BYTES {
        return None;
    }
    let mut change = ConfChangeV2::default();
    for bytes in flat[2..].chunks_exact(CHANGE_BYTES) {
        let mut id = [0; 8];
        id.copy_from_slice(&bytes[1..9]);
        let mut single = ConfChangeSingle::default();
        single.node_id = u64::from_le_bytes(id);
        single.set_change_type(match bytes[0] {
            0 => ConfChangeType::AddNode,
            1 => ConfChangeType::RemoveNode,
            2 => ConfChangeType::AddLearnerNode,
            _ => return None,
        });
        if single.node_id == 0 {
            return None;
        }
        change.mut_changes().push(single);
    }
    Some(change)
}

/// The core's entry for a change in the flat form: the crate reads `data`, everybody else the flat `context`.
pub fn members_entry(flat: &[u8]) -> Option<Entry> {
    let change = parse_changes(flat)?;
    let mut entry = Entry::default();
    entry.set_entry_type(EntryType::EntryConfChangeV2);
    entry.data = Bytes::from(change.write_to_bytes().ok()?);
    entry.context = Bytes::copy_from_slice(flat);
    Some(entry)
}

/// The core's entry for one from outside. None: its kind or its data are not known.
///
/// # Safety
/// The entry's pointers are valid.
pub unsafe fn entry_in(from: &CEntry) -> Option<Entry> {
    let data = from.data.get();
    let mut entry = match from.kind {
        ENTRY_DATA => {
            let mut entry = Entry::default();
            entry.data = Bytes::copy_from_slice(data);
            entry
        }
        ENTRY_MEMBERS => members_entry(data)?,
        _ => return None,
    };
    entry.index = from.index;
    entry.term = from.term;
    Some(entry)
}

/// The flat form of "leave the joint configuration", which the crate proposes without a context.
const LEAVE_JOINT: [u8; 2] = [CHANGE_VERSION, 0];

pub fn entry_out(entry: &Entry) -> CEntry {
    let (kind, data): (u32, &[u8]) = match entry.get_entry_type() {
        EntryType::EntryNormal => (ENTRY_DATA, &entry.data),
        _ if entry.context.is_empty() => (ENTRY_MEMBERS, &LEAVE_JOINT),
        _ => (ENTRY_MEMBERS, &entry.context),
    };
    CEntry {
        index: entry.index,
        term: entry.term,
        kind,
        data: CBytes::of(data),
    }
}

pub fn members_out(state: &ConfState) -> CMembers {
    CMembers {
        voters: CIds::of(&state.voters),
        learners: CIds::of(&state.learners),
        voters_outgoing: CIds::of(&state.voters_outgoing),
        learners_next: CIds::of(&state.learners_next),
        auto_leave: u8::from(state.auto_leave),
    }
}

/// # Safety
/// The pointers of `members` are valid.
pub unsafe fn members_in(members: &CMembers) -> ConfState {
    let mut state = ConfState::default();
    state.voters = members.voters.get();
    state.learners = members.learners.get();
    state.voters_outgoing = members.voters_outgoing.get();
    state.learners_next = members.learners_next.get();
    state.auto_leave = members.auto_leave != 0;
    state
}

pub fn snapshot_out(snapshot: &Snapshot) -> CSnapshot {
    let meta = snapshot.get_metadata();
    CSnapshot {
        index: meta.index,
        term: meta.term,
        members: members_out(meta.get_conf_state()),
        data: CBytes::of(&snapshot.data),
    }
}

/// # Safety
/// The pointers of `from` are valid.
pub unsafe fn snapshot_in(from: &CSnapshot) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.data = Bytes::copy_from_slice(from.data.get());
    let meta = snapshot.mut_metadata();
    meta.index = from.index;
    meta.term = from.term;
    meta.set_conf_state(members_in(&from.members));
    snapshot
}

fn message_type(number: u32) -> Option<MessageType> {
    Some(match number {
        2 => MessageType::MsgPropose,
        3 => MessageType::MsgAppend,
        4 => MessageType::MsgAppendResponse,
        5 => MessageType::MsgRequestVote,
        6 => MessageType::MsgRequestVoteResponse,
        7 => MessageType::MsgSnapshot,
        8 => MessageType::MsgHeartbeat,
        9 => MessageType::MsgHeartbeatResponse,
        13 => MessageType::MsgTransferLeader,
        14 => MessageType::MsgTimeoutNow,
        15 => MessageType::MsgReadIndex,
        16 => MessageType::MsgReadIndexResp,
        17 => MessageType::MsgRequestPreVote,
        18 => MessageType::MsgRequestPreVoteResponse,
        _ => return None,
    })
}

/// None: of an unknown type, or with an entry of an unknown kind.
///
/// # Safety
/// The pointers of `from` are valid.
pub unsafe fn message_in(from: &CMessage) -> Option<Message> {
    let mut message = Message::default();
    message.set_msg_type(message_type(from.kind)?);
    message.to = from.to;
    message.from = from.from;
    message.term = from.term;
    message.log_term = from.log_term;
    message.index = from.index;
    message.commit = from.commit;
    message.commit_term = from.commit_term;
    message.request_snapshot = from.request_snapshot;
    message.reject = from.reject != 0;
    message.reject_hint = from.reject_hint;
    message.context = Bytes::copy_from_slice(from.context.get());
    for i in 0..from.entry_count {
        message.mut_entries().push(entry_in(&*from.entries.add(i))?);
    }
    if let Some(snapshot) = from.snapshot.as_ref() {
        message.set_snapshot(snapshot_in(snapshot));
    }
    Some(message)
}
