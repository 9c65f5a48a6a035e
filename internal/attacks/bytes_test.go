package attacks

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
	"github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1/plimsollv1connect"
	"github.com/plimsoll-dev/plimsoll/internal/testrun"
)

// times returns how often an attack is made: a few times in a short run, and n times in a full
// one.
func times(n int) int { return testrun.Count(2, 4, n) }

// gzipOfGroups sends 8 KiB that would be decoded to 4 million messages.
func gzipOfGroups(t *testing.T, f *fleet) {
	const groups = 4_190_000
	inner := gzipped(t, []byte{5<<3 | 2, 0}, groups)
	// The tag and length of field 1 come before the groups; gzip reads concatenated members.
	spec := nested(1, make([]byte, 2*groups))
	body := append(gzipped(t, spec[:len(spec)-2*groups], 1), inner...)
	t.Logf("%d bytes", len(body))
	atOnce(times(64), 8, func(int) {
		f.do(t, call{
			path: plimsollv1connect.JobServiceSubmitJobProcedure, encoding: "gzip", token: f.userToken(t),
			body: bytes.NewReader(body),
		}).refused(t)
	})
}

// jsonOfObjects sends a body of JSON with millions of empty objects.
func jsonOfObjects(t *testing.T, f *fleet) {
	body := `{"spec": {"groups": [{}` + strings.Repeat(",{}", 2<<20) + `]}}`
	atOnce(times(16), 4, func(int) {
		f.do(t, call{
			path: plimsollv1connect.JobServiceSubmitJobProcedure, contentType: "application/json",
			token: f.userToken(t),
			body:  strings.NewReader(body),
		}).refused(t)
	})
	f.do(t, call{
		path: plimsollv1connect.JobServiceSubmitJobProcedure, contentType: "application/json", token: f.userToken(t),
		body: strings.NewReader(strings.Repeat("[", 4<<20)),
	}).refused(t)
}

// gzipBomb sends a megabyte that inflates to a gigabyte, as a body and in an envelope of a stream.
func gzipBomb(t *testing.T, f *fleet) {
	// Members of 4 MiB one after another: the attacker compresses one of them.
	bomb := bytes.Repeat(gzipped(t, make([]byte, 1024), 4096), testrun.Count(16, 64, 256))
	atOnce(times(32), 8, func(n int) {
		c := call{
			path: plimsollv1connect.JobServiceSubmitJobProcedure, encoding: "gzip", token: f.userToken(t),
			body: bytes.NewReader(bomb),
		}
		switch n % 3 {
		case 1:
			c.path = plimsollv1connect.EventServiceListEventsProcedure
		case 2:
			c = call{
				path: plimsollv1connect.JobServiceWatchJobProcedure, contentType: "application/connect+proto",
				token:   f.userToken(t),
				headers: map[string]string{"Connect-Content-Encoding": "gzip"},
				body:    bytes.NewReader(envelope(1, bomb)),
			}
		}
		a := f.do(t, c)
		if a.err == nil && a.status == http.StatusOK && !strings.Contains(a.text, "error") {
			t.Errorf("a bomb was taken: %s", a)
		}
	})
}

// replicationOfGroups sends a message of 8 MiB to the port of the coordinator, with the token of
// gateways. A faulty gateway must not end the leader either.
func replicationOfGroups(t *testing.T, f *fleet) {
	hello, err := proto.Marshal(
		&pb.ReplicateRequest{Kind: &pb.ReplicateRequest_Hello{Hello: &pb.ReplicateHello{Gateway: "stranger"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	submit := emptyGroups(4 << 20)
	message := nested(3, nested(2, submit)) // ReplicateRequest.command, Command.submit_job
	h2 := stream()
	defer h2.CloseIdleConnections()
	atOnce(times(16), 4, func(n int) {
		body := append(envelope(0, hello), envelope(0, message)...)
		c := call{
			address: f.leader, path: plimsollv1connect.ReplicationServiceReplicateProcedure,
			contentType: "application/connect+proto",
			token:       f.leaderToken(t), body: bytes.NewReader(body),
		}
		res, err := h2.Do(f.request(t.Context(), t, c))
		if err != nil {
			return // the connection was cut, which is a valid answer
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<20)) // until the other side ends it
		_ = res.Body.Close()
	})
}

// nested returns a field of bytes with its number and content.
func nested(field byte, inner []byte) []byte {
	out := []byte{field<<3 | 2}
	n := len(inner)
	for n >= 0x80 {
		out = append(out, byte(n)|0x80)
		n >>= 7
	}
	return append(append(out, byte(n)), inner...)
}

// largeRequests sends many requests of the largest valid size at once.
func largeRequests(t *testing.T, f *fleet) {
	command := strings.Repeat("x", 60<<10)
	groups := []string{}
	for n := range 100 {
		groups = append(groups, fmt.Sprintf(`{"name": "g%d", "count": 1, "command": ["true", %q]}`, n, command))
	}
	body := []byte(`{"spec": {"queue": "root.nowhere.else", "groups": [` + strings.Join(groups, ",") + `]}}`)
	atOnce(times(1000), 128, func(int) {
		f.do(t, call{
			path: plimsollv1connect.JobServiceSubmitJobProcedure, contentType: "application/json",
			token: f.userToken(t),
			body:  bytes.NewReader(body),
		})
	})
}
