package protocol

import "strconv"

// FieldOneMoment says, in a registration, that its topics and its version belong to one moment. Java brokers copy their topics
// first and read the version later, and their name servers pass over the field.
const FieldOneMoment = "ratchetOneMoment"

// Fields of our own in requests for a whole table (21, 201, 43) and their answers. Java brokers pass over them: theirs
// are answered with the table, and they get it from us.
const (
	// FieldMark names, in an answer, the state of the table that was asked for.
	FieldMark = "ratchetMark"
	// FieldUnless has, in a request, the mark of what the asker has already.
	FieldUnless = "ratchetUnless"
	// FieldUnchanged says, in an answer without body, that the asker has the present state.
	FieldUnchanged = "ratchetUnchanged"
)

// Mark is the version as text, for FieldMark.
func (v DataVersion) Mark() string {
	return strconv.FormatInt(v.StateVersion, 36) + "-" + strconv.FormatInt(v.Timestamp, 36) + "-" + strconv.FormatInt(v.Counter, 36)
}
