//! What cannot be done with a file, as an answer.

use api::errors::ErrorCode;
use axum::http::{HeaderValue, header::ETAG};
use engine::sandboxes::files::FileError;
use model::file::EditError;

use crate::http::problem::ApiError;

/// What was being done: the same fault is told in another way to whoever writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Reading,
    Writing,
}

impl Doing {
    /// What LangSmith's clients call it.
    const fn kind(self) -> &'static str {
        match self {
            Self::Reading => "ReadError",
            Self::Writing => "WriteError",
        }
    }
}

pub(super) fn reading(error: FileError) -> ApiError {
    told(error, Doing::Reading)
}

pub(super) fn writing(error: FileError) -> ApiError {
    told(error, Doing::Writing)
}

fn told(error: FileError, doing: Doing) -> ApiError {
    let in_the_way = match doing {
        Doing::Reading => ErrorCode::NotRegular,
        Doing::Writing => ErrorCode::Conflict,
    };
    let code = match &error {
        FileError::NotFound => ErrorCode::NotFound,
        FileError::NotRegular | FileError::IsDirectory => in_the_way,
        FileError::NotADirectory => match doing {
            Doing::Reading => ErrorCode::InvalidPath,
            Doing::Writing => ErrorCode::Conflict,
        },
        FileError::Denied | FileError::Outside => ErrorCode::Forbidden,
        FileError::Symlink => ErrorCode::Symlink,
        FileError::Loop | FileError::InvalidPath => ErrorCode::InvalidPath,
        FileError::Exists | FileError::NotEmpty | FileError::Conflict => ErrorCode::Conflict,
        FileError::Precondition { .. } => ErrorCode::PreconditionFailed,
        FileError::NoSpace => ErrorCode::InsufficientStorage,
        FileError::TooMany | FileError::Lost => ErrorCode::Unavailable,
        FileError::TooLarge { .. } => ErrorCode::PayloadTooLarge,
        FileError::Edit(EditError::Empty | EditError::Same) | FileError::Cut => {
            ErrorCode::InvalidRequest
        }
        FileError::Edit(EditError::NotFound | EditError::NotUnique(_)) => ErrorCode::Conflict,
        FileError::Late => ErrorCode::Timeout,
        FileError::Old => ErrorCode::SandboxNotReady,
        FileError::Kernel(_) => return ApiError::internal(&error),
        FileError::Sandbox(_) => {
            return match error {
                FileError::Sandbox(error) => error.into(),
                other => ApiError::internal(&other),
            };
        }
    };
    let text = error.to_string();
    let answer = ApiError::new(code, text).with_kind(match code {
        ErrorCode::NotFound => "FileNotFound",
        ErrorCode::Forbidden | ErrorCode::Symlink => "PermissionDenied",
        _ => doing.kind(),
    });
    match error {
        FileError::Precondition { current: Some(tag) } => {
            match HeaderValue::from_str(&format!("\"{tag}\"")) {
                Ok(tag) => answer.with_header(ETAG, tag),
                Err(_) => answer,
            }
        }
        _ => answer,
    }
}
