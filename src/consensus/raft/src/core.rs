//! One replica's core: the crate's RawNode with the rules of this project around it.

use crate::border::*;
use crate::guard::{self, No};
use crate::log::Log;
use raft::prelude::{ConfChangeV2, ConfState, Entry, Message, MessageType};
use raft::{Changer, Config, RawNode, Ready, SnapshotStatus, StateRole};

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Ok = 0,
    NotLeader = 1,
    Transferring = 2,
    Full = 3,
    Refused = 4,
    MembersPending = 5,
    NotReady = 6,
    BadStart = 7,
    LogLost = 8,
    OutOfOrder = 9,
    Poisoned = 10,
}

/// Bytes of a read's context: id, boot and counter of who asks.
pub const READ_CONTEXT_BYTES: usize = 24;

pub struct Core {
    node: RawNode<Log>,
    seed: u64,
    boot: u64,
    /// Campaigns begun since the start: a new election timeout for each.
    attempt: u64,
    reads: u64,
    /// Taken and not yet appended. Nothing else may change the core meanwhile.
    pending: Option<Ready>,
    appended: u64,
    out: Out,
    pub reason: String,
}

/// Result of the last call, as long as it is valid.
#[derive(Default)]
struct Out {
    entries: Vec<CEntry>,
    committed: Vec<CEntry>,
    messages: Vec<CMessage>,
    message_entries: Vec<Vec<CEntry>>,
    message_snapshots: Vec<Box<CSnapshot>>,
    snapshot: Option<Box<CSnapshot>>,
    reads: Vec<CRead>,
    members: ConfState,
}

fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Reason why the options are impossible; None: they are possible.
fn options_fault(options: &COptions, log: &CLog, members: &ConfState) -> Option<&'static str> {
    let first = (log.first_index)(log.owner);
    let last = (log.last_index)(log.owner);
    if options.id == 0 || options.boot == 0 {
        return Some("the replica's id or its boot id is 0");
    }
    if options.message_bytes_max == 0 {
        return Some("a message could have one entry only: message_bytes_max is 0");
    }
    if options.heartbeat_ticks == 0 || options.election_ticks <= options.heartbeat_ticks {
        return Some("the election timeout is not longer than the heartbeat interval");
    }
    if options.messages_in_flight_max == 0 {
        return Some("no message could be in flight: messages_in_flight_max is 0");
    }
    if options.uncommitted_bytes_max < options.message_bytes_max {
        return Some("uncommitted_bytes_max is below message_bytes_max");
    }
    if options.committed_bytes_max == 0 {
        return Some("committed_bytes_max is 0");
    }
    if first == 0 || last + 1 < first {
        return Some("the log ends before it begins");
    }
    if options.commit + 1 < first {
        return Some("the commit index is below the snapshot");
    }
    if options.commit > last {
        return Some("committed entries are missing from the log");
    }
    if options.applied + 1 < first || options.applied > options.commit {
        return Some("the applied index is outside the committed entries");
    }
    guard::members_fault(members)
}

impl Core {
    /// # Safety
    /// The pointers of `options` and `log` are valid; those of `log` stay so.
    pub unsafe fn start(options: &COptions, log: &CLog) -> Result<Core, String> {
        let members = members_in(&options.members);
        if let Some(fault) = options_fault(options, log, &members) {
            return Err(fault.to_string());
        }
        let mut hard_state = raft::prelude::HardState::default();
        hard_state.term = options.term;
        hard_state.vote = options.vote;
        hard_state.commit = options.commit;
        let store = Log {
            functions: *log,
            hard_state,
            members,
        };
        let config = Config {
            id: options.id,
            election_tick: options.election_ticks as usize,
            heartbeat_tick: options.heartbeat_ticks as usize,
            applied: options.applied,
            max_size_per_msg: options.message_bytes_max,
            max_inflight_msgs: options.messages_in_flight_max as usize,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: options.uncommitted_bytes_max,
            max_committed_size_per_ready: options.committed_bytes_max,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, store, &logger).map_err(|error| error.to_string())?;
        let mut core = Core {
            node,
            seed: options.seed,
            boot: options.boot,
            attempt: 0,
            reads: 0,
            pending: None,
            appended: 0,
            out: Out::default(),
            reason: String::new(),
        };
        core.settle();
        Ok(core)
    }

    /// The crate drew an election timeout at random: replaces it by one that the seed decides.
    fn settle(&mut self) {
        let raft = &mut self.node.raft;
        let shortest = raft.election_timeout();
        let drawn = mix(mix(mix(self.seed ^ mix(raft.id)) ^ raft.term) ^ self.attempt);
        raft.set_randomized_election_timeout(shortest + (drawn % shortest as u64) as usize);
    }

    fn refuse(&mut self, why: &str) -> Status {
        self.reason.clear();
        self.reason.push_str(why);
        Status::Refused
    }

    pub fn busy(&self) -> bool {
        self.pending.is_some()
    }

    fn leads(&self) -> bool {
        let raft = &self.node.raft;
        raft.state == StateRole::Leader && raft.prs().get(raft.id).is_some()
    }

    pub fn tick(&mut self) -> Status {
        let led = self.node.raft.state == StateRole::Leader;
        self.node.tick();
        if !led && self.node.raft.election_elapsed == 0 {
            self.attempt += 1;
        }
        self.settle();
        Status::Ok
    }

    pub fn step(&mut self, message: Option<Message>) -> Status {
        let message = match message {
            Some(message) => message,
            None => return self.refuse("it is of an unknown type, or an entry is of an unknown kind"),
        };
        match guard::check(&message, &self.node.raft, READ_CONTEXT_BYTES) {
            Ok(()) => {}
            Err(No::Refused(why)) => return self.refuse(&why),
            Err(No::LogLost(why)) => {
                self.reason = why;
                return Status::LogLost;
            }
        }
        let stepped = self.node.step(message);
        self.settle();
        match stepped {
            Ok(()) => Status::Ok,
            Err(error) => self.refuse(&error.to_string()),
        }
    }

    pub fn campaign(&mut self) -> Status {
        self.attempt += 1;
        let campaigned = self.node.campaign();
        self.settle();
        match campaigned {
            Ok(()) => Status::Ok,
            Err(error) => self.refuse(&error.to_string()),
        }
    }

    fn may_propose(&self) -> Status {
        if !self.leads() {
            return Status::NotLeader;
        }
        if self.node.raft.lead_transferee.is_some() {
            return Status::Transferring;
        }
        Status::Ok
    }

    fn propose_entry(&mut self, entry: Entry) -> Result<(u64, u64), Status> {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.node.raft.id;
        message.set_entries(vec![entry].into());
        let proposed = self.node.raft.step(message);
        self.settle();
        match proposed {
            Ok(()) => Ok((self.node.raft.raft_log.last_index(), self.node.raft.term)),
            Err(_) => Err(Status::Full),
        }
    }

    pub fn propose(&mut self, data: &[u8]) -> Result<(u64, u64), Status> {
        match self.may_propose() {
            Status::Ok => {}
            no => return Err(no),
        }
        if data.is_empty() {
            return Err(self.refuse("an empty entry is a new leader's own"));
        }
        let mut entry = Entry::default();
        entry.data = bytes::Bytes::copy_from_slice(data);
        self.propose_entry(entry)
    }

    /// Whether the configuration can be changed so.
    fn try_change(&self, change: &ConfChangeV2) -> Result<(), String> {
        let mut changer = Changer::new(self.node.raft.prs());
        let tried = if change.leave_joint() {
            changer.leave_joint()
        } else if let Some(auto_leave) = change.enter_joint() {
            changer.enter_joint(auto_leave, &change.changes)
        } else {
            changer.simple(&change.changes)
        };
        tried.map(|_| ()).map_err(|error| error.to_string())
    }

    pub fn propose_members(&mut self, changes: &[CChange]) -> Result<(u64, u64), Status> {
        match self.may_propose() {
            Status::Ok => {}
            no => return Err(no),
        }
        if changes.len() > CHANGES_MAX || changes.iter().any(|change| change.kind > 2) {
            return Err(self.refuse("there are too many changes, or one is of an unknown kind"));
        }
        let flat = flat_changes(changes);
        let (entry, change) = match (members_entry(&flat), parse_changes(&flat)) {
            (Some(entry), Some(change)) => (entry, change),
            _ => return Err(self.refuse("a member has the id 0")),
        };
        if self.node.raft.has_pending_conf() {
            return Err(Status::MembersPending);
        }
        if let Err(why) = self.try_change(&change) {
            return Err(self.refuse(&why));
        }
        self.propose_entry(entry)
    }

    pub fn apply_members(&mut self, flat: &[u8]) -> Result<CMembers, Status> {
        let change = match parse_changes(flat) {
            Some(change) => change,
            None => return Err(self.refuse("the entry's data are no change of members")),
        };
        let applied = self.node.apply_conf_change(&change);
        // The crate lets a leader go on that votes no more, and panics when that one persists an entry.
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader && !raft.promotable() {
            let term = raft.term;
            raft.become_follower(term, 0);
        }
        self.settle();
        match applied {
            Ok(members) => {
                self.out.members = members;
                Ok(members_out(&self.out.members))
            }
            Err(error) => Err(self.refuse(&error.to_string())),
        }
    }

    pub fn transfer(&mut self, to: u64) -> Status {
        if !self.leads() {
            return Status::NotLeader;
        }
        if to == self.node.raft.id {
            return self.refuse("this replica is the leader");
        }
        if !self.node.raft.prs().conf().to_conf_state().voters.contains(&to) {
            return self.refuse("it is no voter");
        }
        self.node.transfer_leader(to);
        self.settle();
        Status::Ok
    }

    /// A context that no read of any replica ever had.
    fn read_context(&mut self) -> Vec<u8> {
        self.reads += 1;
        let mut context = Vec::with_capacity(READ_CONTEXT_BYTES);
        context.extend_from_slice(&self.node.raft.id.to_le_bytes());
        context.extend_from_slice(&self.boot.to_le_bytes());
        context.extend_from_slice(&self.reads.to_le_bytes());
        context
    }

    /// The id of this start's read that has the context; None: another's.
    fn own_read(&self, context: &[u8]) -> Option<u64> {
        if context.len() != READ_CONTEXT_BYTES
            || context[..8] != self.node.raft.id.to_le_bytes()
            || context[8..16] != self.boot.to_le_bytes()
        {
            return None;
        }
        let mut id = [0; 8];
        id.copy_from_slice(&context[16..]);
        Some(u64::from_le_bytes(id))
    }

    pub fn read_index(&mut self) -> Result<u64, Status> {
        let raft = &self.node.raft;
        let ready = match raft.state {
            StateRole::Leader => raft.commit_to_current_term(),
            StateRole::Follower => raft.leader_id != 0,
            StateRole::Candidate | StateRole::PreCandidate => false,
        };
        if !ready {
            return Err(Status::NotReady);
        }
        let context = self.read_context();
        self.node.read_index(context);
        Ok(self.reads)
    }

    pub fn unreachable(&mut self, id: u64) -> Status {
        self.node.report_unreachable(id);
        Status::Ok
    }

    pub fn snapshot_sent(&mut self, id: u64, received: bool) -> Status {
        let status = if received {
            SnapshotStatus::Finish
        } else {
            SnapshotStatus::Failure
        };
        self.node.report_snapshot(id, status);
        Status::Ok
    }

    pub fn has_ready(&self) -> bool {
        self.node.has_ready()
    }

    pub fn take_ready(&mut self) -> CReady {
        let ready = self.node.ready();
        let hard_state = self.node.raft.hard_state();
        let waits = !ready.persisted_messages().is_empty();
        self.out = Out::default();
        self.out.entries = ready.entries().iter().map(entry_out).collect();
        self.out.committed = ready.committed_entries().iter().map(entry_out).collect();
        for read in ready.read_states() {
            if let Some(id) = self.own_read(&read.request_ctx) {
                let index = read.index;
                self.out.reads.push(CRead { id, index });
            }
        }
        if !ready.snapshot().is_empty() {
            self.out.snapshot = Some(Box::new(snapshot_out(ready.snapshot())));
        }
        let messages = if waits {
            ready.persisted_messages()
        } else {
            ready.messages()
        };
        for message in messages {
            let view = self.out.view(message);
            self.out.messages.push(view);
        }
        let view = CReady {
            number: ready.number(),
            has_hard_state: u8::from(ready.hs().is_some()),
            must_sync: u8::from(ready.must_sync()),
            messages_wait: u8::from(waits),
            term: hard_state.term,
            vote: hard_state.vote,
            commit: hard_state.commit,
            entries: self.out.entries.as_ptr(),
            entry_count: self.out.entries.len(),
            snapshot: match &self.out.snapshot {
                Some(snapshot) => &**snapshot,
                None => std::ptr::null(),
            },
            committed: self.out.committed.as_ptr(),
            committed_count: self.out.committed.len(),
            messages: self.out.messages.as_ptr(),
            message_count: self.out.messages.len(),
            reads: self.out.reads.as_ptr(),
            read_count: self.out.reads.len(),
        };
        self.pending = Some(ready);
        view
    }

    pub fn appended(&mut self) -> Status {
        match self.pending.take() {
            Some(ready) => {
                self.appended = ready.number();
                self.node.advance_append_async(ready);
                self.settle();
                Status::Ok
            }
            None => Status::OutOfOrder,
        }
    }

    pub fn persisted(&mut self, number: u64) -> Status {
        if number > self.appended {
            return Status::OutOfOrder;
        }
        self.node.on_persist_ready(number);
        self.settle();
        Status::Ok
    }

    pub fn applied(&mut self, index: u64) -> Status {
        let log = &self.node.raft.raft_log;
        if index < log.applied || index > log.committed.min(log.persisted) {
            return Status::OutOfOrder;
        }
        self.node.advance_apply_to(index);
        self.settle();
        Status::Ok
    }

    pub fn state(&self) -> CState {
        let raft = &self.node.raft;
        CState {
            role: match raft.state {
                StateRole::Follower => 0,
                StateRole::PreCandidate => 1,
                StateRole::Candidate => 2,
                StateRole::Leader => 3,
            },
            leader: raft.leader_id,
            term: raft.term,
            vote: raft.vote,
            commit: raft.raft_log.committed,
            applied: raft.raft_log.applied,
            persisted: raft.raft_log.persisted,
            last_index: raft.raft_log.last_index(),
            transferring_to: raft.lead_transferee.unwrap_or(0),
            election_ticks: raft.randomized_election_timeout() as u64,
            members_pending: u8::from(raft.has_pending_conf()),
            joint: u8::from(!raft.prs().conf().to_conf_state().voters_outgoing.is_empty()),
            promotable: u8::from(raft.promotable()),
            committed_in_term: u8::from(raft.commit_to_current_term()),
        }
    }

    pub fn members(&mut self) -> CMembers {
        self.out.members = self.node.raft.prs().conf().to_conf_state();
        self.out.members.voters.sort_unstable();
        self.out.members.learners.sort_unstable();
        self.out.members.voters_outgoing.sort_unstable();
        self.out.members.learners_next.sort_unstable();
        members_out(&self.out.members)
    }

    pub fn progress(&self) -> Vec<CProgress> {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader {
            return Vec::new();
        }
        let learners = raft.prs().conf().to_conf_state().learners;
        let mut all: Vec<CProgress> = raft
            .prs()
            .iter()
            .map(|(id, progress)| CProgress {
                id: *id,
                matched: progress.matched,
                next: progress.next_idx,
                active: u8::from(progress.recent_active),
                needs_snapshot: u8::from(progress.state == raft::ProgressState::Snapshot),
                learner: u8::from(learners.contains(id)),
            })
            .collect();
        all.sort_unstable_by_key(|progress| progress.id);
        all
    }
}

impl Out {
    fn view(&mut self, message: &Message) -> CMessage {
        let entries: Vec<CEntry> = message.entries.iter().map(entry_out).collect();
        let mut view = CMessage {
            kind: message.get_msg_type() as u32,
            reject: u8::from(message.reject),
            to: message.to,
            from: message.from,
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            commit: message.commit,
            commit_term: message.commit_term,
            request_snapshot: message.request_snapshot,
            reject_hint: message.reject_hint,
            context: CBytes::of(&message.context),
            entries: entries.as_ptr(),
            entry_count: entries.len(),
            snapshot: std::ptr::null(),
        };
        if message.snapshot.is_some() {
            let snapshot = Box::new(snapshot_out(message.get_snapshot()));
            view.snapshot = &*snapshot;
            self.message_snapshots.push(snapshot);
        }
        self.message_entries.push(entries);
        view
    }
}
