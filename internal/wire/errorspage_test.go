package wire_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/internal/wire"
)

var update = flag.Bool("update", false, "write the page of errors again")

// explained are the words of the page of errors on each code.
var explained = [plimsoll.NumCodes]struct {
	means, todo, titus string
}{
	plimsoll.CodeInternal: {
		"a fault of the server; its log has the cause", "report it; for a change, look whether it was made",
		"INTERNAL, 500",
	},
	plimsoll.CodeInvalid: {
		"the request is wrong; `field` names the field, `message` the fix", "correct it",
		"INVALID_ARGUMENT, 400",
	},
	plimsoll.CodeNotFound: {
		"there is no such object, also not in the archive", "look at the name",
		"NOT_FOUND, 404",
	},
	plimsoll.CodeAlreadyExists: {
		"the id is taken, perhaps by a job in the archive", "choose another id, or submit with `replace`",
		"INVALID_ARGUMENT or RESOURCE_EXHAUSTED (a sequence that is taken)",
	},
	plimsoll.CodeConflict: {
		"the object is in a state that does not allow this, such as a job that has ended",
		"read the object, and decide again", "FAILED_PRECONDITION, 412",
	},
	plimsoll.CodeUnavailable: {
		"there is no leader, or the gateway does not know the answer: it has no link to the leader, or cannot read the archive",
		"try again after `Retry-After`, here or at another gateway", "UNAVAILABLE, 503",
	},
	plimsoll.CodeExhausted: {
		"a bound was reached: requests, bytes, jobs of a queue, pinned lists",
		"try again after `Retry-After`, or ask for less",
		"RESOURCE_EXHAUSTED, 429",
	},
	plimsoll.CodeDenied: {
		"the token does not allow this call", "use the token of the role", "PERMISSION_DENIED, 405",
	},
	plimsoll.CodeStale: {
		"the request belongs to an earlier time: a watch's point, a pinned list or a node's session that is over",
		"begin again", "ABORTED",
	},
	plimsoll.CodeDeadline: {
		"the time that the caller allowed ran out", "allow more; for a change, see `reason`", "DEADLINE_EXCEEDED, 504",
	},
	plimsoll.CodeCanceled: {"the caller gave up", "nothing", "CANCELLED"},
	plimsoll.CodeCorrupt: {
		"stored data cannot be read; the message names the record", "report it; other records are not affected",
		"INTERNAL, 500",
	},
	plimsoll.CodeAlreadyRunning: {
		"another process has the directory or the address", "stop that one, or use another directory", "–",
	},
	plimsoll.CodeUnimplemented: {
		"the server is older and does not know the call", "upgrade the server", "UNIMPLEMENTED",
	},
	plimsoll.CodeUnauthenticated: {
		"the call has no valid token", "give one: `PLIMSOLL_TOKEN_FILE`", "UNAUTHENTICATED, 401",
	},
	plimsoll.CodeOutcomeUnknown: {
		"the change was made or not: the answer was lost", "repeat it with the same token, or look", "–",
	},
}

// reasons are the words of the page for Error.reason.
var reasons = map[string]string{
	wire.ReasonNoEffect: "nothing was changed", wire.ReasonOutcomeUnknown: "not known", "": "look",
}

// errorsHead is the beginning of the page, with ~ for a back quote.
const errorsHead = `# Errors

Every answer that is an error has one of these codes. It stands in the detail ~plimsoll.v1.Error~,
a message with ~code~, ~op~, ~field~, ~message~ and ~reason~. Over gRPC that is a detail of the
status, and in JSON the ~debug~ of [the error's details](api.md#errors). Two codes can share a gRPC
code; the detail tells them apart.

The column *a change* says what became of a call that changes something: ~reason~ has it as a word,
~no_effect~ or ~outcome_unknown~. The last column has what Titus answers in such a case.

This page is made from the code's table by
~go test ./internal/wire -run TestErrorsPage -update~.

| code | gRPC | HTTP | means | what to do | a change | Titus |
|---|---|---|---|---|---|---|
`

// errorsPage is the page docs/reference/errors.md.
func errorsPage(t *testing.T) string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(errorsHead, "~", "`"))
	for code := range plimsoll.Code(plimsoll.NumCodes) {
		e := explained[code]
		if e.means == "" || e.todo == "" || e.titus == "" {
			t.Errorf("the page does not explain %s", code)
		}
		detail := wire.ErrorToProto(&plimsoll.Error{Code: code, Msg: "x"})
		word, ok := reasons[detail.GetReason()]
		if !ok {
			t.Errorf("%s has the reason %q, which the page does not explain", code, detail.GetReason())
		}
		fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %s | %s | %s |\n", code, grpcName(wire.ConnectCode(code)),
			wire.HTTPStatus(code), e.means, e.todo, word, e.titus)
	}
	return b.String()
}

// grpcName is the name of a code in gRPC's own spelling.
func grpcName(code connect.Code) string { return strings.ToUpper(code.String()) }

// TestErrorsPageIsTheTable holds the page of errors against the table of codes. With -update it is
// written.
func TestErrorsPageIsTheTable(t *testing.T) {
	const path = "../../docs/reference/errors.md"
	want := errorsPage(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the code says; run the test with -update and look at the difference", path)
	}
}

// The fields that the page names are those of the message.
func TestErrorsPageNamesTheFieldsOfTheMessage(t *testing.T) {
	var names []string
	fields := (&pb.Error{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		names = append(names, "`"+fields.Get(i).JSONName()+"`")
	}
	page := errorsPage(t)
	for _, name := range names {
		if !strings.Contains(page, name) {
			t.Errorf("the page does not name %s", name)
		}
	}
}
