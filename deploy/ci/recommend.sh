#!/bin/sh
# Compares the requests in manifests with what `plimsoll recommend` computes, for pipelines: action.yml and gitlab.yml
# call it, and it runs in any other one.
#
#   PLIMSOLL             the program; if it is empty, it is downloaded to $OUT:
#   PLIMSOLL_URL           an archive of a release, plimsoll-linux-amd64.tar.gz
#   PLIMSOLL_SHA256        its line in checksums.txt of the release, or only the digest
#   MANIFESTS            files and folders, separated by spaces
#   ARGUMENTS            additional flags of `plimsoll recommend`, separated by spaces
#   OUT                  folder of the results: report.md, report.sarif, report.json, changes.diff
#   MAX_COMMENT_BYTES    a longer report.md is cut at the end of a line, for services that limit comments
#
# The exit code is that of plimsoll: 1 if --fail-on is met, 4 if something could not be read.
set -eu

OUT=${OUT:-plimsoll-report}
mkdir -p "$OUT"

if [ -z "${PLIMSOLL:-}" ]; then
    : "${PLIMSOLL_URL:?set PLIMSOLL, or PLIMSOLL_URL and PLIMSOLL_SHA256}"
    : "${PLIMSOLL_SHA256:?set the digest of the archive: a download is not run without it}"
    archive=$OUT/plimsoll.tar.gz
    curl --fail --silent --show-error --location --retry 3 --output "$archive" "$PLIMSOLL_URL"
    echo "${PLIMSOLL_SHA256%% *}  $archive" | sha256sum --check --quiet -
    tar -xzf "$archive" -C "$OUT" plimsoll
    rm "$archive"
    PLIMSOLL=$OUT/plimsoll
fi

code=0
# Manifests and arguments are lists.
# shellcheck disable=SC2086
"$PLIMSOLL" recommend --diff ${MANIFESTS:-.} \
    -o "markdown=$OUT/report.md" -o "sarif=$OUT/report.sarif" -o "json=$OUT/report.json" \
    ${ARGUMENTS:-} >"$OUT/changes.diff" || code=$?

if [ ! -s "$OUT/report.md" ]; then
    echo "plimsoll recommend wrote no report: exit code $code" >&2
    [ "$code" -ne 0 ] || code=3
    exit "$code"
fi

if [ -s "$OUT/changes.diff" ]; then
    {
        printf '\n<details><summary>Changes of the manifests</summary>\n\n````diff\n'
        cat "$OUT/changes.diff"
        printf '````\n\n</details>\n'
    } >"$OUT/details.md"
    size=$(cat "$OUT/report.md" "$OUT/details.md" | wc -c)
    if [ "$size" -le "${MAX_COMMENT_BYTES:-$size}" ]; then
        cat "$OUT/details.md" >>"$OUT/report.md"
    else
        printf '\nThe changes of the manifests are in changes.diff.\n' >>"$OUT/report.md"
    fi
    rm "$OUT/details.md"
fi

if [ "$(wc -c <"$OUT/report.md")" -gt "${MAX_COMMENT_BYTES:-1000000000}" ]; then
    note='The report is cut here: see report.md.'
    head -c $((MAX_COMMENT_BYTES - ${#note} - 2)) "$OUT/report.md" | sed '$d' >"$OUT/cut.md"
    printf '\n%s\n' "$note" >>"$OUT/cut.md"
    mv "$OUT/report.md" "$OUT/report-whole.md"
    mv "$OUT/cut.md" "$OUT/report.md"
fi

exit "$code"
