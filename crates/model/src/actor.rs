//! Who acts: a person, or a program for one.

/// Who acts with a key or a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor {
    pub kind: ActorKind,
    pub id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActorKind {
    Human,
    Agent,
}

impl ActorKind {
    pub fn text(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Agent => "agent",
        }
    }

    pub fn read(text: &str) -> Option<Self> {
        [Self::Human, Self::Agent].into_iter().find(|kind| kind.text() == text)
    }
}
