package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// compiled returns the contract as buf would compile it, without comments.
func compiled(t *testing.T) []byte {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	for _, path := range []string{
		"plimsoll/v1/qos.proto", "plimsoll/v1/objects.proto", "plimsoll/v1/api.proto", "plimsoll/v1/watch.proto",
		"plimsoll/v1/history.proto", "plimsoll/v1/requests.proto",
	} {
		d, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil {
			t.Fatal(err)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(d))
	}
	if set.File[2].GetName() != pb.File_plimsoll_v1_api_proto.Path() {
		t.Fatal("api.proto is not the third file")
	}
	set.File[2].SourceCodeInfo = &descriptorpb.SourceCodeInfo{Location: []*descriptorpb.SourceCodeInfo_Location{{
		Path: []int32{6, 0, 2, 0}, Span: []int32{1, 1, 1},
		LeadingComments: new(" SubmitJob does <this>.\n\n And | that.\n"),
	}}}
	data, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheReferenceHasEveryCallWithItsComment(t *testing.T) {
	made, err := files(compiled(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"docs/reference/calls.md": {
			"### SubmitJob\n\nSubmitJob does <this>.\n\nAnd | that.\n\n" +
				"`POST /plimsoll.v1.JobService/SubmitJob`, with one answer.",
			"| `spec` | [JobSpec](#jobspec) |", "`POST /plimsoll.v1.WatchService/WatchJobs`, with a stream of answers.",
			"| `env` | map of string to string |", "| `JOB_STATE_RUNNING` | 4 |",
		},
		pagesDir + "JobService.html": {
			`<section id="SubmitJob">`, "<p>SubmitJob does &lt;this&gt;.</p>",
			`<a href="types.html#JobSpec">JobSpec</a>`,
		},
		pagesDir + "types.html": {`<section id="JobSpec">`, `<section id="JobState">`},
		pagesDir + "index.html": {`<a href="WatchService.html#WatchJobs">WatchJobs</a>`},
		pagesDir + "style.css":  {"color-scheme: light dark"},
	} {
		for _, text := range want {
			if !strings.Contains(string(made[name]), text) {
				t.Errorf("%s lacks %q", name, text)
			}
		}
	}
	for name, data := range made {
		if strings.Contains(string(data), "AgentService") {
			t.Errorf("%s tells of a service that is not for users", name)
		}
	}
}

// A field without a comment in proto/ has an empty cell in the reference.
func TestEveryFieldHasAComment(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/calls.md")
	if err != nil {
		t.Fatal(err)
	}
	empty := regexp.MustCompile("(?m)^\\| `[a-z]\\w*` \\| [^|]* \\|  \\|$")
	for _, row := range empty.FindAllString(string(data), -1) {
		t.Errorf("write a comment in proto/ for the field, and run make generate: %s", row)
	}
}

func TestWhatIsNotCompiledIsRefused(t *testing.T) {
	for name, data := range map[string][]byte{"no proto files": {0xff}, "no files": nil} {
		if made, err := files(data); err == nil {
			t.Errorf("%s: %d files", name, len(made))
		}
	}
}
