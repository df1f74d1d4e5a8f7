//! Rules of the repository itself: what may be depended on, how code is laid out, what pages say.

mod checkout;
mod code;
mod dependencies;
mod licences;
mod pages;
