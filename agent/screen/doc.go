// Package screen draws the status screen on the machine's monitor or a BMC's remote console.
//
// Draw converts the agent's state to a Frame, and a Painter writes frames to a terminal. It uses control sequences of
// ECMA-48 that the Linux console supports (console_codes(4)): cursor position, erase in line and in display, colours.
// All text is printable ASCII, so that a character fills one cell in any font. The scrolling region is not changed,
// and the cursor stays on the last line, so that other output, such as the stack of a panic, scrolls the screen and
// is readable.
//
// # Plain text, and only on screens
//
// The remote console of a BMC often shows an image of a text screen over a slow link, and operators attach photographs
// of it to their questions. So the screen is ASCII in five colours, and only changed rows are drawn. A serial console
// is a log that is read later: control sequences would make it unreadable, and more than one line for each 5 % would
// hide the other lines.
package screen
