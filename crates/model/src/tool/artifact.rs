//! Files that a run leaves in `output/`, and the ids that they are fetched by.

use std::collections::BTreeSet;

/// Returns an id for each path, in order: letters and digits, the rest `_`, all different.
pub fn artifact_ids(paths: &[&str]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    paths.iter().map(|path| free_id(&id_of(path), &mut taken)).collect()
}

fn id_of(path: &str) -> String {
    let lower = path.to_lowercase();
    let parts =
        lower.split(|letter: char| !letter.is_ascii_lowercase() && !letter.is_ascii_digit());
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "artifact".to_owned() } else { parts.join("_") }
}

fn free_id(id: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2u64..).map(|number| format!("{id}_{number}"));
    let free = std::iter::once(id.to_owned()).chain(numbered).find(|id| !taken.contains(id));
    let free = free.unwrap_or_default();
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_artifacts_are_plain_and_differ() {
        let paths = [
            "output/Report (1).pdf",
            "output/report-1.pdf",
            "output/report_1_pdf_2",
            "output/é",
            "output/../x",
            "北",
            "___",
            "",
        ];
        assert_eq!(
            artifact_ids(&paths),
            [
                "output_report_1_pdf",
                "output_report_1_pdf_2",
                "output_report_1_pdf_2_2",
                "output",
                "output_x",
                "artifact",
                "artifact_2",
                "artifact_3",
            ]
        );
    }
}
