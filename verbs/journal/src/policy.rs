//! What a program asks of its journals. Pure.

/// What an atomic without its answer is to the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// An error: it may look at the value.
    #[default]
    Needed,
    /// Done: it never looks.
    Unread,
}

/// What is posted again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// What was not executed, by the count of the other end's NIC.
    #[default]
    Exact,
    /// What has not completed, but for messages that the other end has received: what a shim can do that asks no NIC
    /// (SHIFT, arXiv 2512.11094, section 4.3). An atomic that has not completed is an error.
    Paper,
}

/// What a program asks of its journals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What an atomic without its answer is.
    pub answers: Answers,
    /// What is posted again.
    pub rule: Rule,
}
