package wire

import (
	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// AttemptToProto converts an attempt of a task.
func AttemptToProto(a *plimsoll.Attempt) *pb.Attempt {
	return &pb.Attempt{
		Number:   a.Number,
		Node:     text(a.Node),
		Result:   pb.TaskResult(a.Result),
		ExitCode: a.ExitCode,
		Message:  text(a.Message),
		Pending:  a.Pending,
		Bound:    a.Bound,
		Starting: a.Starting,
		Started:  a.Started,
		Stopping: a.Stopping,
		Finished: a.Finished,
	}
}

// AttemptFromProto converts an attempt of a task.
func AttemptFromProto(m *pb.Attempt) plimsoll.Attempt {
	return plimsoll.Attempt{
		Number:   m.GetNumber(),
		Node:     m.GetNode(),
		Result:   EnumFromProto[plimsoll.TaskResult](m.GetResult()),
		ExitCode: m.GetExitCode(),
		Message:  m.GetMessage(),
		Pending:  m.GetPending(),
		Bound:    m.GetBound(),
		Starting: m.GetStarting(),
		Started:  m.GetStarted(),
		Stopping: m.GetStopping(),
		Finished: m.GetFinished(),
	}
}

// AppendAttempt encodes an attempt of a task.
func AppendAttempt(dst []byte, a *plimsoll.Attempt) []byte {
	dst = appendInt32(dst, 1, a.Number)
	dst = appendText(dst, 2, a.Node)
	dst = appendVarint(dst, 3, uint64(a.Result))
	dst = appendInt32(dst, 4, a.ExitCode)
	dst = appendText(dst, 5, a.Message)
	dst = appendVarint(dst, 6, uint64(a.Pending))
	dst = appendVarint(dst, 7, uint64(a.Bound))
	dst = appendVarint(dst, 8, uint64(a.Starting))
	dst = appendVarint(dst, 9, uint64(a.Started))
	dst = appendVarint(dst, 10, uint64(a.Stopping))
	return appendVarint(dst, 11, uint64(a.Finished))
}

func sizeAttempt(a *plimsoll.Attempt) int {
	return sizeInt32(1, a.Number) + sizeText(2, a.Node) + sizeVarint(3, uint64(a.Result)) + sizeInt32(4, a.ExitCode) +
		sizeText(5, a.Message) + sizeVarint(6, uint64(a.Pending)) + sizeVarint(7, uint64(a.Bound)) +
		sizeVarint(8, uint64(a.Starting)) + sizeVarint(9, uint64(a.Started)) + sizeVarint(10, uint64(a.Stopping)) +
		sizeVarint(11, uint64(a.Finished))
}

// DecodeAttempt decodes an attempt of a task.
func DecodeAttempt(data []byte) (plimsoll.Attempt, error) {
	var a plimsoll.Attempt
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err == nil {
			data = rest
			err = decodeAttemptField(&a, &f)
		}
		if err != nil {
			return plimsoll.Attempt{}, corrupt("attempt", err)
		}
	}
	if err := checkEnum[plimsoll.TaskResult]("result", a.Result); err != nil {
		return plimsoll.Attempt{}, corrupt("attempt", err)
	}
	return a, nil
}

func decodeAttemptField(a *plimsoll.Attempt, f *field) (err error) {
	switch f.tag {
	case 1<<3 | varintType:
		a.Number = int32(f.v)
	case 2<<3 | bytesType:
		a.Node, err = string(f.b), checkText(f.b)
	case 3<<3 | varintType:
		a.Result = plimsoll.TaskResult(enum(f))
	case 4<<3 | varintType:
		a.ExitCode = int32(f.v)
	case 5<<3 | bytesType:
		a.Message, err = string(f.b), checkText(f.b)
	case 6<<3 | varintType:
		a.Pending = int64(f.v)
	case 7<<3 | varintType:
		a.Bound = int64(f.v)
	case 8<<3 | varintType:
		a.Starting = int64(f.v)
	case 9<<3 | varintType:
		a.Started = int64(f.v)
	case 10<<3 | varintType:
		a.Stopping = int64(f.v)
	case 11<<3 | varintType:
		a.Finished = int64(f.v)
	}
	return err
}

// AppendAttempts encodes attempts as a list in field 1, as they stand in the archive.
func AppendAttempts(dst []byte, attempts []plimsoll.Attempt) []byte {
	for i := range attempts {
		dst = AppendAttempt(appendHeader(dst, 1, sizeAttempt(&attempts[i])), &attempts[i])
	}
	return dst
}

// DecodeAttempts decodes what AppendAttempts has encoded.
func DecodeAttempts(data []byte) (attempts []plimsoll.Attempt, err error) {
	for len(data) > 0 {
		f, rest, err := nextField(data)
		if err != nil {
			return nil, corrupt("attempts", err)
		}
		if data = rest; f.tag != 1<<3|bytesType {
			continue
		}
		a, err := DecodeAttempt(f.b)
		if err != nil {
			return nil, err
		}
		attempts = append(attempts, a)
	}
	return attempts, nil
}
