// The timeline: the sound of both directions on one time axis, with marks. Drag, the wheel and the slider move it.

import { BUCKET_S } from './measures.js';

const KINDS = ['speech', 'transcript', 'speaking', 'rollover', 'error'];

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
    const marksHeight = 76;
    const axis = 20;
    const lane = (height - marksHeight - axis) / 2;
    this.drawAxis(view, height - axis, axis);
    this.drawSound(view, trace.up, marksHeight + lane / 2, lane, this.colours.up, 'to the model');
    this.drawSound(view, trace.down, marksHeight + lane * 1.5, lane, this.colours.down, 'to the client');
    this.drawMarks(view, trace.marks, marksHeight, height - axis);
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
      context.fillText(`${second} s`, x(second) + 3, top + height - 5);
    }
  }

  drawSound({ context, width, startS, x }, sound, middle, height, colour, name) {
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
    context.fillStyle = this.colours.panel;
    context.fillRect(0, middle - height / 2, context.measureText(name).width + 10, 17);
    context.fillStyle = this.colours.soft;
    context.fillText(name, 4, middle - height / 2 + 13);
  }

  drawMarks({ context, width, startS, x }, marks, height, bottom) {
    // Every kind has a line of its own, so that labels of different kinds never cover each other.
    const freeFrom = new Map();
    const row = height / KINDS.length;
    for (const { kind, timeS, text, isEnd, isSmall } of marks) {
      if (timeS < startS - this.shownS || timeS > startS + this.shownS) continue;
      const [left, line] = [x(timeS), KINDS.indexOf(kind)];
      const top = line * row;
      context.fillStyle = this.colours[kind];
      if (isSmall) {
        context.fillRect(left, top + 3, 2, row - 5);
        continue;
      }
      context.globalAlpha = isEnd ? 0.35 : 0.6;
      context.fillRect(left, top + 2, 1, bottom - top - 2);
      context.globalAlpha = 1;
      context.fillRect(isEnd ? left - 5 : left, top + 4, 5, 9);
      if (!isEnd && left >= (freeFrom.get(kind) ?? -Infinity)) {
        const most = 260;
        const shown = fit(context, text, Math.min(most, width));
        context.fillText(shown, left + 8, top + 13);
        freeFrom.set(kind, left + 14 + context.measureText(shown).width);
      }
    }
  }
}

function fit(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let shown = text;
  while (shown && context.measureText(`${shown}…`).width > width) shown = shown.slice(0, -4);
  return `${shown}…`;
}
