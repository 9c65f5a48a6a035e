package gateway

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// methodsOfAPI are the methods and services of all proto files, by name.
func methodsOfAPI() map[string]bool {
	names := map[string]bool{}
	for _, file := range []protoreflect.FileDescriptor{
		pb.File_plimsoll_v1_api_proto, pb.File_plimsoll_v1_watch_proto, pb.File_plimsoll_v1_replication_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			names[string(service.Name())] = true
			for k := range service.Methods().Len() {
				names[string(service.Methods().Get(k).Name())] = true
			}
		}
	}
	return names
}

// TestThePageOnTitusNamesCallsAndFieldsThatExist holds the columns of calls and fields of TITUS.md
// against the proto files, and looks for methods of JobService that it does not name.
func TestThePageOnTitusNamesCallsAndFieldsThatExist(t *testing.T) {
	page, err := os.ReadFile("TITUS.md")
	if err != nil {
		t.Fatal(err)
	}
	methods := methodsOfAPI()
	calls := regexp.MustCompile(`\b[A-Z][a-z]+[A-Z]\w+\b`)
	rows := 0
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		rows++
		for _, name := range calls.FindAllString(cells[2], -1) {
			if !methods[name] {
				t.Errorf("there is no call %s: %s", name, line)
			}
		}
	}
	if rows < 30 {
		t.Errorf("the page has %d rows", rows)
	}
	service := pb.File_plimsoll_v1_api_proto.Services().ByName("JobService")
	for i := range service.Methods().Len() {
		name := string(service.Methods().Get(i).Name())
		switch name {
		case "ExplainTask", "ExplainWaiting", "PlaceJob", "ReadLogs", "FetchOutputs":
			continue // Titus has none of these
		}
		if !strings.Contains(string(page), name) {
			t.Errorf("the page does not name %s", name)
		}
	}
	fields := (&pb.ListJobsRequest{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		switch name {
		case "after", "consistency", "since", "until":
			continue // Titus has none of these
		}
		if !regexp.MustCompile(`\|[^|]*\|[^|]*\b` + name + `\b`).Match(page) {
			t.Errorf("the page does not name the field %s", name)
		}
	}
}
