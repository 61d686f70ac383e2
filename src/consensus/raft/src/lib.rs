//! The functions of gpusched_raft.h: each catches what panics inside, and poisons its core then.

// The structs of the crate are filled field by field, as its own code does it.
#![allow(clippy::field_reassign_with_default)]
// gpusched_raft.h says once for all functions how the pointers must be.
#![allow(clippy::missing_safety_doc)]

mod border;
mod core;
mod guard;
mod log;

use crate::border::*;
use crate::core::{Core, Status};
use std::any::Any;
use std::ffi::c_void;
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

/// The handle that the header calls gpusched_raft.
pub struct Handle {
    core: Core,
    poisoned: bool,
}

const VERSION: u32 = 1;

fn text_of(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_string();
    }
    match panic.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => "the core panicked".to_string(),
    }
}

/// Runs `work` on a core that is not poisoned.
unsafe fn with(handle: *mut Handle, work: impl FnOnce(&mut Core) -> Status) -> Status {
    let handle = &mut *handle;
    if handle.poisoned {
        return Status::Poisoned;
    }
    let core = &mut handle.core;
    match catch_unwind(AssertUnwindSafe(|| work(core))) {
        Ok(status) => status,
        Err(panic) => {
            handle.poisoned = true;
            handle.core.reason = text_of(&*panic);
            Status::Poisoned
        }
    }
}

/// The same for what changes the core: not between `take_ready` and `appended`.
unsafe fn change(handle: *mut Handle, work: impl FnOnce(&mut Core) -> Status) -> Status {
    with(handle, |core| {
        if core.busy() {
            return Status::OutOfOrder;
        }
        work(core)
    })
}

/// Writes what `made` has; the status tells whether it has something.
unsafe fn give<T>(made: Result<T, Status>, to: *mut T) -> Status {
    match made {
        Ok(value) => {
            to.write(value);
            Status::Ok
        }
        Err(status) => status,
    }
}

unsafe fn give_place(made: Result<(u64, u64), Status>, index: *mut u64, term: *mut u64) -> Status {
    match made {
        Ok(place) => {
            index.write(place.0);
            term.write(place.1);
            Status::Ok
        }
        Err(status) => status,
    }
}

unsafe fn tell(why: &str, to: *mut c_char, size: usize) {
    if size == 0 {
        return;
    }
    let mut length = why.len().min(size - 1);
    while !why.is_char_boundary(length) {
        length -= 1;
    }
    std::ptr::copy_nonoverlapping(why.as_ptr() as *const c_char, to, length);
    to.add(length).write(0);
}

#[no_mangle]
pub extern "C" fn gpusched_raft_version() -> u32 {
    VERSION
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_start(
    options: *const COptions,
    log: *const CLog,
    core: *mut *mut Handle,
    why: *mut c_char,
    why_size: usize,
) -> Status {
    let started = catch_unwind(AssertUnwindSafe(|| Core::start(&*options, &*log)));
    let fault = match started {
        Ok(Ok(started)) => {
            let poisoned = false;
            core.write(Box::into_raw(Box::new(Handle {
                core: started,
                poisoned,
            })));
            return Status::Ok;
        }
        Ok(Err(fault)) => fault,
        Err(panic) => text_of(&*panic),
    };
    tell(&fault, why, why_size);
    Status::BadStart
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_free(core: *mut Handle) {
    if core.is_null() {
        return;
    }
    let handle = Box::from_raw(core);
    let _ = catch_unwind(AssertUnwindSafe(move || drop(handle)));
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_reason(core: *const Handle) -> CBytes {
    CBytes::of((*core).core.reason.as_bytes())
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_tick(core: *mut Handle) -> Status {
    change(core, |core| core.tick())
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_step(core: *mut Handle, message: *const CMessage) -> Status {
    change(core, |core| core.step(message_in(&*message)))
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_campaign(core: *mut Handle) -> Status {
    change(core, |core| core.campaign())
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_propose(
    core: *mut Handle,
    data: CBytes,
    index: *mut u64,
    term: *mut u64,
) -> Status {
    change(core, |core| give_place(core.propose(data.get()), index, term))
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_propose_members(
    core: *mut Handle,
    changes: *const CChange,
    count: usize,
    index: *mut u64,
    term: *mut u64,
) -> Status {
    change(core, |core| {
        let changes: &[CChange] = if count == 0 {
            &[]
        } else {
            slice::from_raw_parts(changes, count)
        };
        give_place(core.propose_members(changes), index, term)
    })
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_apply_members(
    core: *mut Handle,
    data: CBytes,
    members: *mut CMembers,
) -> Status {
    change(core, |core| give(core.apply_members(data.get()), members))
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_transfer(core: *mut Handle, to: u64) -> Status {
    change(core, |core| core.transfer(to))
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_read_index(core: *mut Handle, id: *mut u64) -> Status {
    change(core, |core| give(core.read_index(), id))
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_unreachable(core: *mut Handle, id: u64) -> Status {
    change(core, |core| core.unreachable(id))
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_snapshot_sent(
    core: *mut Handle,
    id: u64,
    received: u8,
) -> Status {
    change(core, |core| core.snapshot_sent(id, received != 0))
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_has_ready(core: *const Handle, has: *mut u8) -> Status {
    with(core as *mut Handle, |core| {
        has.write(u8::from(core.has_ready()));
        Status::Ok
    })
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_take_ready(core: *mut Handle, ready: *mut CReady) -> Status {
    change(core, |core| {
        ready.write(core.take_ready());
        Status::Ok
    })
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_appended(core: *mut Handle) -> Status {
    with(core, |core| core.appended())
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_persisted(core: *mut Handle, number: u64) -> Status {
    change(core, |core| core.persisted(number))
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_applied(core: *mut Handle, index: u64) -> Status {
    change(core, |core| core.applied(index))
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_get_state(core: *const Handle, state: *mut CState) -> Status {
    with(core as *mut Handle, |core| {
        state.write(core.state());
        Status::Ok
    })
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_get_members(
    core: *mut Handle,
    members: *mut CMembers,
) -> Status {
    with(core, |core| {
        members.write(core.members());
        Status::Ok
    })
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_get_progress(
    core: *const Handle,
    progress: *mut CProgress,
    room: usize,
    count: *mut usize,
) -> Status {
    with(core as *mut Handle, |core| {
        let all = core.progress();
        for (i, one) in all.iter().take(room).enumerate() {
            progress.add(i).write(*one);
        }
        count.write(all.len());
        Status::Ok
    })
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_take_entry(sink: *mut c_void, entry: *const CEntry) {
    (*(sink as *mut log::Entries)).take(entry);
}

#[no_mangle]
pub unsafe extern "C" fn gpusched_raft_take_snapshot(sink: *mut c_void, snapshot: *const CSnapshot) {
    (*(sink as *mut log::TakenSnapshot)).take(snapshot);
}
