// The timeline: the sound of both directions on one time axis, with marks. Drag, the wheel and the slider move it.

import { BUCKET_S } from './measures.js';

const KINDS = ['speech', 'transcript', 'speaking', 'tool', 'rollover', 'error'];

export class Timeline {
  // `onMove(endS)` is called when somebody moves the view; `endS` is null for following the present.
  constructor(canvas, onMove) {
    this.canvas = canvas;
    this.onMove = onMove;
    this.shownS = 15;
    this.endS = 0;
    const observer = new ResizeObserver(() => this.resize());
    observer.observe(canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { this.colours = null; });
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.onMove(this.endS + ((event.deltaX + event.deltaY) / 500) * this.shownS);
    }, { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.drag(event));
  }

  drag(start) {
    const from = this.endS;
    this.canvas.setPointerCapture(start.pointerId);
    const move = ({ clientX }) => this.onMove(from - ((clientX - start.clientX) / this.canvas.clientWidth) * this.shownS);
    this.canvas.addEventListener('pointermove', move);
    this.canvas.addEventListener('pointerup', () => this.canvas.removeEventListener('pointermove', move), { once: true });
  }

  resize() {
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(this.canvas.clientWidth * scale);
    this.canvas.height = Math.round(this.canvas.clientHeight * scale);
    this.isDirty = true;
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries(['up', 'down', 'line', 'soft', 'text', 'page', 'panel', 'accent', ...KINDS].map((name) => [name, read(name)]));
  }

  // Draws the time up to `endS`. `cursorS` is where playback is.
  draw(trace, endS, cursorS) {
    if (!this.colours) this.readColours();
    this.endS = endS;
    const context = this.canvas.getContext('2d');
    const scale = devicePixelRatio || 1;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const startS = endS - this.shownS;
    const view = { context, width, startS, x: (timeS) => ((timeS - startS) / this.shownS) * width };
    context.clearRect(0, 0, width, height);
    context.font = '12px system-ui, sans-serif';
    const marksHeight = 91;
    const axis = 20;
    const lane = (height - marksHeight - axis) / 2;
    this.drawAxis(view, height - axis, axis);
    this.drawSound(view, trace.up, marksHeight + lane / 2, lane, this.colours.up);
    this.drawSound(view, trace.down, marksHeight + lane * 1.5, lane, this.colours.down);
    this.drawMarks(view, trace.marks, marksHeight, height - axis);
    this.drawName(view, marksHeight + 2, 'to the model');
    this.drawName(view, marksHeight + lane + 2, 'to the client');
    if (cursorS !== null) {
      context.fillStyle = this.colours.accent;
      context.fillRect(view.x(cursorS) - 1, 0, 2, height - axis);
    }
  }

  drawAxis({ context, width, startS, x }, top, height) {
    const { colours } = this;
    const step = this.shownS > 30 ? 10 : this.shownS > 10 ? 2 : 1;
    context.fillStyle = colours.line;
    context.fillRect(0, top, width, 1);
    for (let second = Math.max(0, Math.ceil(startS / step) * step); x(second) < width; second += step) {
      context.fillStyle = colours.line;
      context.fillRect(x(second), top, 1, 5);
      context.fillStyle = colours.soft;
      const label = `${second} s`;
      if (x(second) + 3 + context.measureText(label).width <= width) context.fillText(label, x(second) + 3, top + height - 5);
    }
  }

  drawSound({ context, width, startS, x }, sound, middle, height, colour) {
    context.fillStyle = this.colours.line;
    context.fillRect(0, middle, width, 1);
    context.fillStyle = colour;
    const first = Math.max(0, Math.floor(startS / BUCKET_S));
    const last = Math.min(sound.envelope.end, Math.ceil((startS + this.shownS) / BUCKET_S));
    const bar = Math.max(1, x(startS + BUCKET_S) - 0.5);
    for (let bucket = first; bucket < last; bucket += 1) {
      const high = sound.envelope.at(bucket);
      // The square root shows quiet speech.
      const size = high ? Math.max(1, Math.sqrt(high) * (height - 22)) : 0;
      if (size) context.fillRect(x(bucket * BUCKET_S), middle - size / 2, bar, size);
    }
  }

  drawName({ context }, top, name) {
    context.fillStyle = this.colours.panel;
    context.fillRect(0, top, context.measureText(name).width + 10, 17);
    context.fillStyle = this.colours.soft;
    context.fillText(name, 4, top + 13);
  }

  // Every kind has a row of its own above the sound; lines lead from the marks to the sound.
  drawMarks({ context, width, x }, marks, height, bottom) {
    const row = height / KINDS.length;
    const placed = placeMarks(marks, x, width, (text) => context.measureText(text).width);
    for (const { kind, left, top, isEnd, isSmall } of placed.map((mark) => ({ ...mark, top: KINDS.indexOf(mark.kind) * row }))) {
      context.fillStyle = this.colours[kind];
      if (isSmall) {
        context.fillRect(left, top + 3, 2, row - 5);
        continue;
      }
      context.fillRect(isEnd ? left - SQUARE_PX : left, top + 4, SQUARE_PX, 9);
      context.globalAlpha = isEnd ? 0.35 : 0.6;
      context.fillRect(left, height, 1, bottom - height);
      context.globalAlpha = 1;
    }
    for (const { kind, left, label } of placed) {
      if (!label) continue;
      const top = KINDS.indexOf(kind) * row;
      const from = left + LABEL_FROM_PX;
      // Small marks lie below the words.
      context.fillStyle = this.colours.panel;
      context.fillRect(from - 1, top + 2, context.measureText(label).width + 2, row);
      context.fillStyle = this.colours[kind];
      context.fillText(label, from, top + 13);
    }
  }
}

const SQUARE_PX = 5;
const LABEL_FROM_PX = 8;
const LABEL_GAP_PX = 6;
const LABEL_MAX_PX = 260;
// A label that does not fit as a whole has at least this room, or is left out.
const LABEL_MIN_PX = 60;
// More letters than fit into any label.
const LABEL_MAX_CHARS = 100;

// Where the marks stand that are in view or near it, with the part of each label that fits before the next mark of its kind.
export function placeMarks(marks, x, width, measure) {
  const placed = [];
  const next = new Map();
  for (const mark of marks.toReversed()) {
    const left = x(mark.timeS);
    if (left < -LABEL_MAX_PX || left > width) continue;
    const room = Math.min(LABEL_MAX_PX, (next.get(mark.kind) ?? width) - LABEL_GAP_PX - left - LABEL_FROM_PX);
    const hasLabel = mark.text && !mark.isEnd && !mark.isSmall;
    placed.push({ ...mark, left, label: hasLabel ? fit(measure, mark.text, room) : '' });
    if (!mark.isSmall) next.set(mark.kind, left - (mark.isEnd ? SQUARE_PX : 0));
  }
  return placed.reverse();
}

function fit(measure, text, width) {
  let shown = text.slice(0, LABEL_MAX_CHARS);
  if (shown === text && measure(text) <= width) return text;
  if (width < LABEL_MIN_PX) return '';
  while (shown && measure(`${shown}…`) > width) shown = shown.slice(0, -1);
  return `${shown}…`;
}
