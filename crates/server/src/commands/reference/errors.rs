//! The page of the problem codes.

use postrider_api::problem::Code;

use super::{Document, code};

const INTRODUCTION: &str = "\
Every refusal of the API is a problem document (RFC 9457, `application/problem+json`) with `type`, `title`, `status`,
`code`, `detail` and, where one is to blame, the `field`. Programs should look at `code`, which does not change;
`detail` says what is wrong this time, for people. Where waiting helps, the header `Retry-After` says for how long.";

pub(super) fn page() -> String {
    let mut page = Document::new("Error codes", INTRODUCTION);
    page.line("");
    page.columns(&["status", "code", "meaning", "what to do"]);
    for problem in Code::ALL {
        page.row(&[
            problem.status().as_u16().to_string(),
            code(problem.as_str()),
            problem.title().to_owned(),
            problem.remedy().to_owned(),
        ]);
    }
    page.0
}
