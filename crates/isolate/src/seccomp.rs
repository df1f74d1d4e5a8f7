//! Which system calls user code may make.
//!
//! Three filters, each with one answer, loaded on top of each other; the kernel takes the most
//! severe answer of the three:
//!
//! 1. sockets of other families than the everyday ones are not supported (`EAFNOSUPPORT`);
//! 2. what is known to be dangerous is refused (`EPERM`);
//! 3. what is neither refused nor allowed does not exist (`ENOSYS`, so that runtimes fall back).
//!    This comes last because the call that loads filters is among what does not exist.
//!
//! A call of another architecture ends the process.

mod table;

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use table::{ALLOWED, INIT, NAMESPACE_FLAGS, REFUSED};

/// The filters cannot be compiled on this machine.
#[derive(Debug, thiserror::Error)]
#[error("cannot compile the system call filter")]
pub struct SeccompError(#[from] seccompiler::BackendError);

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns the filters for user code, in the order they are to be loaded.
pub fn for_user_code() -> Result<Vec<Vec<u8>>, SeccompError> {
    let errno = |code: i32| SeccompAction::Errno(code.unsigned_abs());
    Ok(vec![
        compile(families()?, SeccompAction::Allow, errno(libc::EAFNOSUPPORT))?,
        compile(refused()?, SeccompAction::Allow, errno(libc::EPERM))?,
        compile(known()?, errno(libc::ENOSYS), SeccompAction::Allow)?,
    ])
}

/// Returns the filter for init.
pub fn for_init() -> Result<Vec<u8>, SeccompError> {
    let rules = INIT.iter().map(|call| (*call, Vec::new())).collect();
    compile(rules, SeccompAction::Errno(libc::EPERM.unsigned_abs()), SeccompAction::Allow)
}

/// What is refused has had its answer already, and counts as known here.
fn known() -> Result<Rules, SeccompError> {
    let mut rules: Rules = ALLOWED.iter().chain(REFUSED).map(|call| (*call, Vec::new())).collect();
    // The two personalities that change nothing: the default, and the question which it is.
    let personality = [0, 0xffff_ffff]
        .into_iter()
        .map(|value| rule([argument(0, Width::Dword, Op::Eq, value)?]))
        .collect::<Result<_, SeccompError>>()?;
    rules.insert(libc::SYS_personality, personality);
    Ok(rules)
}

fn refused() -> Result<Rules, SeccompError> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    // A new namespace would give back capabilities, if only inside it.
    let namespaces = NAMESPACE_FLAGS
        .iter()
        .map(|flag| rule([argument(0, Width::Qword, Op::MaskedEq(*flag), *flag)?]))
        .collect::<Result<_, SeccompError>>()?;
    rules.insert(libc::SYS_clone, namespaces);
    // Typing into a terminal on behalf of its user. The kernel looks at the low half only.
    let terminal = [libc::TIOCSTI, libc::TIOCLINUX]
        .into_iter()
        .map(|request| rule([argument(1, Width::Dword, Op::Eq, request)?]))
        .collect::<Result<_, SeccompError>>()?;
    rules.insert(libc::SYS_ioctl, terminal);
    Ok(rules)
}

fn families() -> Result<Rules, SeccompError> {
    let family =
        |op: Op, value: libc::c_int| argument(0, Width::Dword, op, u64::from(value.unsigned_abs()));
    let other = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]
        .into_iter()
        .map(|known| family(Op::Ne, known))
        .collect::<Result<Vec<_>, _>>()?;
    let netlink_other_than_route = [
        family(Op::Eq, libc::AF_NETLINK)?,
        argument(2, Width::Dword, Op::Ne, u64::from(libc::NETLINK_ROUTE.unsigned_abs()))?,
    ];
    Ok(BTreeMap::from([
        (libc::SYS_socket, vec![rule(other)?, rule(netlink_other_than_route)?]),
        (libc::SYS_socketpair, vec![rule([family(Op::Ne, libc::AF_UNIX)?])?]),
    ]))
}

fn argument(index: u8, width: Width, op: Op, value: u64) -> Result<SeccompCondition, SeccompError> {
    Ok(SeccompCondition::new(index, width, op, value)?)
}

fn rule(conditions: impl Into<Vec<SeccompCondition>>) -> Result<SeccompRule, SeccompError> {
    Ok(SeccompRule::new(conditions.into())?)
}

fn compile(
    rules: Rules,
    otherwise: SeccompAction,
    on_match: SeccompAction,
) -> Result<Vec<u8>, SeccompError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let program: BpfProgram = SeccompFilter::new(rules, otherwise, on_match, arch)?.try_into()?;
    Ok(program.iter().flat_map(to_bytes).collect())
}

fn to_bytes(instruction: &seccompiler::sock_filter) -> [u8; 8] {
    let [code_0, code_1] = instruction.code.to_ne_bytes();
    let [k_0, k_1, k_2, k_3] = instruction.k.to_ne_bytes();
    [code_0, code_1, instruction.jt, instruction.jf, k_0, k_1, k_2, k_3]
}

#[cfg(test)]
mod tests;
