//! What a message of another replica must satisfy before the crate sees it: the crate trusts its peers, and
//! panics on messages that contradict the protocol.

use crate::log::Log;
use raft::prelude::{ConfState, Message, MessageType};
use raft::{Raft, StateRole};

/// A term or an index that no group reaches: no arithmetic on it overflows.
const NUMBER_MAX: u64 = 1 << 62;
/// Terms that a message may be ahead: an election each second for 136 years. A member that claims more would
/// use up the terms of all.
pub const TERMS_AHEAD_MAX: u64 = 1 << 32;
const CONTEXT_BYTES_MAX: usize = 64;
pub const MEMBERS_MAX: usize = 16;

pub enum No {
    Refused(String),
    /// The leader knows entries of this replica that its log does not have.
    LogLost(String),
}

fn refuse<T>(why: &str) -> Result<T, No> {
    Err(No::Refused(why.to_string()))
}

fn distinct(ids: &[u64]) -> bool {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

/// Reason why these members are impossible; None: they are possible.
pub fn members_fault(members: &ConfState) -> Option<&'static str> {
    let sets = [
        &members.voters,
        &members.learners,
        &members.voters_outgoing,
        &members.learners_next,
    ];
    if sets.iter().any(|set| set.len() > MEMBERS_MAX) {
        return Some("there are too many members");
    }
    if sets.iter().any(|set| set.contains(&0)) {
        return Some("a member has the id 0");
    }
    if members.voters.is_empty() {
        return Some("there is no voter");
    }
    if !sets.iter().all(|set| distinct(set)) {
        return Some("a member is named twice");
    }
    let votes = |id: &u64| members.voters.contains(id) || members.voters_outgoing.contains(id);
    if members.learners.iter().any(votes) {
        return Some("a member votes and learns");
    }
    let leaves = |id: &u64| members.voters_outgoing.contains(id) && !members.voters.contains(id);
    if !members.learners_next.iter().all(leaves) {
        return Some("a member that becomes a learner is no voter that leaves");
    }
    if members.auto_leave && members.voters_outgoing.is_empty() {
        return Some("there is no joint configuration to leave");
    }
    None
}

fn check_numbers(message: &Message) -> Result<(), No> {
    let numbers = [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.request_snapshot,
        message.reject_hint,
    ];
    if numbers.iter().any(|number| *number > NUMBER_MAX) {
        return refuse("a term or an index is impossibly large");
    }
    if message.context.len() > CONTEXT_BYTES_MAX {
        return refuse("the context is too long");
    }
    Ok(())
}

fn check_sender(message: &Message, raft: &Raft<Log>) -> Result<(), No> {
    if message.to != raft.id {
        return refuse("it is for another replica");
    }
    if message.from == 0 || message.from == raft.id {
        return refuse("it names no other replica as its sender");
    }
    // A message without a term passes for one of this replica's own, so nearly none may be without.
    let forwarded = message.get_msg_type() == MessageType::MsgReadIndex;
    if (message.term == 0) != forwarded {
        return refuse("it has no term, or one that its type does not have");
    }
    if message.term > raft.term.saturating_add(TERMS_AHEAD_MAX) {
        return refuse("its term is in the far future");
    }
    Ok(())
}

fn check_append(message: &Message, raft: &Raft<Log>) -> Result<(), No> {
    if message.log_term > message.term {
        return refuse("it follows an entry of a later term");
    }
    // The crate reads the term 0 behind its log's end, and would take such an append for one that fits.
    if (message.log_term == 0) != (message.index == 0) {
        return refuse("it follows an entry without a term");
    }
    let mut index = message.index;
    let mut term = message.log_term;
    for entry in message.entries.iter() {
        index += 1;
        if entry.index != index {
            return refuse("its entries have gaps");
        }
        if entry.term < term || entry.term == 0 || entry.term > message.term {
            return refuse("the terms of its entries are out of order");
        }
        term = entry.term;
    }
    if message.term < raft.term || message.index < raft.raft_log.committed {
        return Ok(()); // The crate answers without a look at the entries.
    }
    if message.index == raft.raft_log.committed
        && raft.raft_log.term(message.index).unwrap_or(0) != message.log_term
    {
        return refuse("it contradicts a committed entry");
    }
    Ok(())
}

fn check_leader(message: &Message, raft: &Raft<Log>) -> Result<(), No> {
    if message.term != raft.term {
        return Ok(());
    }
    if raft.state == StateRole::Leader {
        return refuse("this replica leads that term itself");
    }
    if raft.leader_id != 0 && raft.leader_id != message.from {
        return refuse("another replica leads that term");
    }
    Ok(())
}

fn check_answer(message: &Message, raft: &Raft<Log>) -> Result<(), No> {
    if raft.prs().get(message.from).is_none() {
        return refuse("its sender is no member");
    }
    if message.term != raft.term || raft.state != StateRole::Leader {
        return Ok(());
    }
    let last = raft.raft_log.last_index();
    // A rejection names the index that it rejects, which this leader sent, or a snapshot's.
    if message.index > last || message.request_snapshot > last {
        return refuse("it acknowledges entries that this leader does not have");
    }
    if message.commit > last {
        return refuse("it has committed entries that this leader does not have");
    }
    Ok(())
}

fn check_snapshot(message: &Message, raft: &Raft<Log>) -> Result<(), No> {
    let meta = message.get_snapshot().get_metadata();
    if meta.index == 0 || meta.term == 0 || meta.index > NUMBER_MAX || meta.term > message.term {
        return refuse("its snapshot has an impossible place");
    }
    if let Some(fault) = members_fault(meta.get_conf_state()) {
        return Err(No::Refused(format!("in its snapshot, {}", fault)));
    }
    if meta.index == raft.raft_log.committed
        && raft.raft_log.term(meta.index).unwrap_or(0) != meta.term
    {
        return refuse("its snapshot contradicts a committed entry");
    }
    Ok(())
}

fn check_read(message: &Message, context_bytes: usize) -> Result<(), No> {
    if message.entries.len() != 1 || message.entries[0].data.len() != context_bytes {
        return refuse("its read has no context of the right length");
    }
    Ok(())
}

/// Whether the crate may see this message.
pub fn check(message: &Message, raft: &Raft<Log>, read_context_bytes: usize) -> Result<(), No> {
    let kind = message.get_msg_type();
    match kind {
        MessageType::MsgPropose => return refuse("proposals are not forwarded"),
        MessageType::MsgTransferLeader => return refuse("orders to transfer are not forwarded"),
        _ => {}
    }
    check_numbers(message)?;
    check_sender(message, raft)?;
    if message.snapshot.is_some() != (kind == MessageType::MsgSnapshot) {
        return refuse("it has a snapshot, and its type has none, or the other way round");
    }
    match kind {
        MessageType::MsgAppend => {
            check_leader(message, raft)?;
            check_append(message, raft)
        }
        MessageType::MsgHeartbeat => {
            check_leader(message, raft)?;
            if message.term >= raft.term && message.commit > raft.raft_log.last_index() {
                return Err(No::LogLost(format!(
                    "replica {} knows that this one had the committed entry {}, and its log ends at {}",
                    message.from,
                    message.commit,
                    raft.raft_log.last_index()
                )));
            }
            Ok(())
        }
        MessageType::MsgSnapshot => {
            check_leader(message, raft)?;
            check_snapshot(message, raft)
        }
        MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse => {
            check_answer(message, raft)
        }
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            if raft.prs().get(message.from).is_none() {
                return refuse("its sender is no member");
            }
            Ok(())
        }
        MessageType::MsgReadIndex => {
            if raft.state != StateRole::Leader {
                return refuse("only a leader answers reads, and they are forwarded once");
            }
            if raft.prs().get(message.from).is_none() {
                return refuse("its sender is no member");
            }
            check_read(message, read_context_bytes)
        }
        MessageType::MsgReadIndexResp => check_read(message, read_context_bytes),
        _ => Ok(()),
    }
}
