//! Executions on a real engine with a real spawner.

#[cfg(test)]
mod added;
#[cfg(test)]
mod attached;
#[cfg(test)]
mod bombs;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod collect;
#[cfg(test)]
mod companions;
#[cfg(test)]
mod concurrent_commands;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod containment;
#[cfg(test)]
mod disks;
#[cfg(test)]
mod event_retention;
#[cfg(test)]
mod executions;
#[cfg(test)]
mod exit_status;
#[cfg(test)]
mod fair_sandboxes;
#[cfg(test)]
mod files;
#[cfg(test)]
mod home;
#[cfg(test)]
mod idleness;
#[cfg(test)]
mod images;
#[cfg(test)]
mod neighbours;
#[cfg(test)]
mod networks;
#[cfg(test)]
mod node;
#[cfg(test)]
mod outputs;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod ports;
#[cfg(test)]
mod power_loss;
#[cfg(test)]
mod sandboxes;
#[cfg(test)]
mod service;
mod shared_files;
#[cfg(test)]
mod shells;
mod siblings;
#[cfg(test)]
mod slots;
#[cfg(test)]
mod snippets;
#[cfg(test)]
mod stock;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod tools;
mod user_ranges;
