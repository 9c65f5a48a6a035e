package wire

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// JobStatusToProto converts the status of a job.
func JobStatusToProto(s *plimsoll.JobStatus) *pb.JobStatus {
	m := &pb.JobStatus{
		Id:        text(s.ID),
		Owner:     text(s.Owner),
		Queue:     text(s.Queue),
		State:     pb.JobState(s.State),
		Reason:    text(s.Reason),
		Killed:    s.Killed,
		Submitted: s.Submitted,
		Started:   s.Started,
		Finished:  s.Finished,
		Revision:  s.Revision,
		Uid:       s.UID.Text(),
		Deleted:   s.Deleted,

		UserLimits: s.UserLimits,
		LimitGroup: text(s.LimitGroup),
	}
	for _, step := range s.History {
		m.History = append(m.History, &pb.JobStep{
			State: pb.JobState(step.State), At: step.At, Reason: pb.StepReason(step.Reason),
		})
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		status := &pb.GroupStatus{
			Name:         text(g.Name),
			Count:        g.Count,
			WaitCode:     pb.WaitCode(g.Wait.Code),
			WaitQueue:    text(g.Wait.Queue),
			WaitResource: text(g.Wait.Resource),
			WaitAsked:    g.Wait.Asked,
			WaitKnown:    text(g.Wait.Known),

			WaitUserOrGroup: text(g.Wait.UserOrGroup),
		}
		if c := &g.Counts; *c != (plimsoll.TaskCounts{}) {
			status.Counts = &pb.TaskCounts{
				Pending: c.Pending, Bound: c.Bound, Starting: c.Starting, Running: c.Running, Stopping: c.Stopping,
				Succeeded: c.Succeeded, Failed: c.Failed,
			}
		}
		m.Groups = append(m.Groups, status)
	}
	return m
}

// JobStatusFromProto converts the status of a job.
func JobStatusFromProto(m *pb.JobStatus) plimsoll.JobStatus {
	s := plimsoll.JobStatus{
		ID:        m.GetId(),
		Owner:     m.GetOwner(),
		Queue:     m.GetQueue(),
		State:     EnumFromProto[plimsoll.JobState](m.GetState()),
		Reason:    m.GetReason(),
		Killed:    m.GetKilled(),
		Submitted: m.GetSubmitted(),
		Started:   m.GetStarted(),
		Finished:  m.GetFinished(),
		Revision:  m.GetRevision(),
		UID:       UIDFromText(m.GetUid()),
		Deleted:   m.GetDeleted(),

		UserLimits: m.GetUserLimits(),
		LimitGroup: m.GetLimitGroup(),
	}
	for _, step := range m.GetHistory() {
		s.History = append(s.History, plimsoll.JobStep{
			State: EnumFromProto[plimsoll.JobState](step.GetState()), At: step.GetAt(),
			Reason: EnumFromProto[plimsoll.StepReason](step.GetReason()),
		})
	}
	for _, g := range m.GetGroups() {
		s.Groups = append(s.Groups, GroupStatusFromProto(g))
	}
	return s
}

// GroupStatusFromProto converts the status of a group.
func GroupStatusFromProto(g *pb.GroupStatus) plimsoll.GroupStatus {
	c := g.GetCounts()
	return plimsoll.GroupStatus{
		Name:  g.GetName(),
		Count: g.GetCount(),
		Counts: plimsoll.TaskCounts{
			Pending: c.GetPending(), Bound: c.GetBound(), Starting: c.GetStarting(), Running: c.GetRunning(),
			Stopping: c.GetStopping(), Succeeded: c.GetSucceeded(), Failed: c.GetFailed(),
		},
		Wait: plimsoll.WaitCause{
			Code:  EnumFromProto[plimsoll.WaitCode](g.GetWaitCode()),
			Queue: g.GetWaitQueue(), Resource: g.GetWaitResource(), Asked: g.GetWaitAsked(),
			Known: g.GetWaitKnown(), UserOrGroup: g.GetWaitUserOrGroup(),
		},
	}
}

// AppendJobStatus encodes the status of a job.
func AppendJobStatus(dst []byte, s *plimsoll.JobStatus) []byte {
	dst = appendText(dst, 1, s.ID)
	dst = appendText(dst, 2, s.Owner)
	dst = appendText(dst, 3, s.Queue)
	dst = appendVarint(dst, 4, uint64(s.State))
	dst = appendText(dst, 5, s.Reason)
	dst = appendBool(dst, 6, s.Killed)
	dst = appendVarint(dst, 7, uint64(s.Submitted))
	dst = appendVarint(dst, 8, uint64(s.Started))
	dst = appendVarint(dst, 9, uint64(s.Finished))
	for i := range s.Groups {
		g := &s.Groups[i]
		dst = appendGroupStatus(appendHeader(dst, 10, sizeGroupStatus(g)), g)
	}
	dst = appendVarint(dst, 11, s.Revision)
	dst = appendUID(dst, 12, s.UID)
	for i := range s.History {
		dst = appendJobStep(appendHeader(dst, 13, sizeJobStep(&s.History[i])), &s.History[i])
	}
	dst = appendBool(dst, 14, s.Deleted)
	dst = appendBool(dst, 15, s.UserLimits)
	return appendText(dst, 16, s.LimitGroup)
}

func appendJobStep(dst []byte, s *plimsoll.JobStep) []byte {
	dst = appendVarint(dst, 1, uint64(s.State))
	dst = appendVarint(dst, 2, uint64(s.At))
	return appendVarint(dst, 3, uint64(s.Reason))
}

func sizeJobStep(s *plimsoll.JobStep) int {
	return sizeVarint(1, uint64(s.State)) + sizeVarint(2, uint64(s.At)) + sizeVarint(3, uint64(s.Reason))
}

func decodeJobStep(data []byte) (s plimsoll.JobStep, err error) {
	for len(data) > 0 {
		var f field
		if f, data, err = nextField(data); err != nil {
			return s, err
		}
		switch f.tag {
		case 1<<3 | varintType:
			s.State = plimsoll.JobState(enum(&f))
		case 2<<3 | varintType:
			s.At = int64(f.v)
		case 3<<3 | varintType:
			s.Reason = plimsoll.StepReason(enum(&f))
		}
	}
	if err := checkEnum[plimsoll.JobState]("state", s.State); err != nil {
		return s, err
	}
	return s, checkEnum[plimsoll.StepReason]("reason of a state", s.Reason)
}

func appendGroupStatus(dst []byte, g *plimsoll.GroupStatus) []byte {
	dst = appendText(dst, 1, g.Name)
	dst = appendInt32(dst, 2, g.Count)
	if size := sizeTaskCounts(&g.Counts); size > 0 {
		dst = appendTaskCounts(appendHeader(dst, 3, size), &g.Counts)
	}
	dst = appendVarint(dst, 4, uint64(g.Wait.Code))
	dst = appendText(dst, 6, g.Wait.Queue)
	dst = appendText(dst, 7, g.Wait.Resource)
	dst = appendVarint(dst, 8, uint64(g.Wait.Asked))
	dst = appendText(dst, 9, g.Wait.Known)
	return appendText(dst, 10, g.Wait.UserOrGroup)
}

func sizeGroupStatus(g *plimsoll.GroupStatus) int {
	return sizeText(1, g.Name) + sizeInt32(2, g.Count) + sizeLen(3, sizeTaskCounts(&g.Counts)) +
		sizeVarint(4, uint64(g.Wait.Code)) + sizeText(6, g.Wait.Queue) + sizeText(7, g.Wait.Resource) + sizeVarint(
		8, uint64(g.Wait.Asked),
	) +
		sizeText(9, g.Wait.Known) + sizeText(10, g.Wait.UserOrGroup)
}

func appendTaskCounts(dst []byte, c *plimsoll.TaskCounts) []byte {
	dst = appendInt32(dst, 1, c.Pending)
	dst = appendInt32(dst, 2, c.Bound)
	dst = appendInt32(dst, 3, c.Starting)
	dst = appendInt32(dst, 4, c.Running)
	dst = appendInt32(dst, 5, c.Stopping)
	dst = appendInt32(dst, 6, c.Succeeded)
	return appendInt32(dst, 7, c.Failed)
}

func sizeTaskCounts(c *plimsoll.TaskCounts) int {
	return sizeInt32(1, c.Pending) + sizeInt32(2, c.Bound) + sizeInt32(3, c.Starting) + sizeInt32(4, c.Running) +
		sizeInt32(5, c.Stopping) + sizeInt32(6, c.Succeeded) + sizeInt32(7, c.Failed)
}

// DecodeJobStatus decodes the status of a job.
func DecodeJobStatus(data []byte) (plimsoll.JobStatus, error) {
	var s plimsoll.JobStatus
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err == nil {
			data = rest
			err = decodeJobStatusField(&s, &f)
		}
		if err != nil {
			return plimsoll.JobStatus{}, corrupt("job status", err)
		}
	}
	if err := checkEnum[plimsoll.JobState]("state", s.State); err != nil {
		return plimsoll.JobStatus{}, corrupt("job status", err)
	}
	return s, nil
}

func decodeJobStatusField(s *plimsoll.JobStatus, f *field) (err error) {
	switch f.tag {
	case 1<<3 | bytesType:
		s.ID, err = string(f.b), checkText(f.b)
	case 2<<3 | bytesType:
		s.Owner, err = string(f.b), checkText(f.b)
	case 3<<3 | bytesType:
		s.Queue, err = string(f.b), checkText(f.b)
	case 4<<3 | varintType:
		s.State = plimsoll.JobState(enum(f))
	case 5<<3 | bytesType:
		s.Reason, err = string(f.b), checkText(f.b)
	case 6<<3 | varintType:
		s.Killed = f.v != 0
	case 7<<3 | varintType:
		s.Submitted = int64(f.v)
	case 8<<3 | varintType:
		s.Started = int64(f.v)
	case 9<<3 | varintType:
		s.Finished = int64(f.v)
	case 10<<3 | bytesType:
		var g plimsoll.GroupStatus
		err = decodeGroupStatus(&g, f.b)
		s.Groups = append(s.Groups, g)
	case 11<<3 | varintType:
		s.Revision = f.v
	case 12<<3 | bytesType:
		s.UID, err = decodeUID(f.b)
	case 13<<3 | bytesType:
		var step plimsoll.JobStep
		step, err = decodeJobStep(f.b)
		s.History = append(s.History, step)
	case 14<<3 | varintType:
		s.Deleted = f.v != 0
	case 15<<3 | varintType:
		s.UserLimits = f.v != 0
	case 16<<3 | bytesType:
		s.LimitGroup, err = string(f.b), checkText(f.b)
	}
	return err
}

func decodeGroupStatus(g *plimsoll.GroupStatus, data []byte) error {
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return err
		}
		data = rest
		switch f.tag {
		case 1<<3 | bytesType:
			g.Name, err = string(f.b), checkText(f.b)
		case 2<<3 | varintType:
			g.Count = int32(f.v)
		case 3<<3 | bytesType:
			err = decodeTaskCounts(&g.Counts, f.b)
		case 4<<3 | varintType:
			g.Wait.Code = plimsoll.WaitCode(enum(&f))
		case 6<<3 | bytesType:
			g.Wait.Queue, err = string(f.b), checkText(f.b)
		case 7<<3 | bytesType:
			g.Wait.Resource, err = string(f.b), checkText(f.b)
		case 8<<3 | varintType:
			g.Wait.Asked = int64(f.v)
		case 9<<3 | bytesType:
			g.Wait.Known, err = string(f.b), checkText(f.b)
		case 10<<3 | bytesType:
			g.Wait.UserOrGroup, err = string(f.b), checkText(f.b)
		}
		if err != nil {
			return err
		}
	}
	return checkEnum[plimsoll.WaitCode]("wait code", g.Wait.Code)
}

// decodeTaskCounts merges data into c, as protobuf does with a message that occurs twice.
func decodeTaskCounts(c *plimsoll.TaskCounts, data []byte) error {
	counts := [...]*int32{1: &c.Pending, &c.Bound, &c.Starting, &c.Running, &c.Stopping, &c.Succeeded, &c.Failed}
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return err
		}
		data = rest
		if number := f.tag >> 3; f.tag&7 == varintType && number < uint64(len(counts)) {
			*counts[number] = int32(f.v)
		}
	}
	return nil
}
